"""The commands of a site in a study, and recalibration at home."""

import sys
from pathlib import Path
from typing import Any

from fedcal.cli.parameters import Json, Overwrite
from fedcal.core import checks, pages
from fedcal.results import page, terminal
from fedcal.run import folders
from fedcal.secure_aggregation.roster import in_words


def join(
    kit: Path,
    data: str,
    *,
    columns: str | None = None,
    labels: str | None = None,
    drop_missing: bool = False,
    new_keys: bool = False,
) -> None:
    """Join a study at a site: check its rows, make its keys, write the file to send back.

    How the file of rows is read is remembered for later files.

    Arguments
    ---------
    kit : KIT
        The folder from the coordinator.
    data : ROWS
        This site's labelled scores.

    Rows
    ----
    columns : --map
        Names of columns in the file and in the study, OLD=NEW,...
    labels
        Entries of the label and their classes, OLD=NEW,...
    drop_missing
        Leave out rows without an outcome or a score, at most the share that the study allows.

    Files and output
    ----------------
    new_keys
        Make new keys, if the old ones are lost or known to others.

    Examples
    --------
    fedcal site join alder/ rows.csv
    fedcal site join alder/ rows.csv --map "Outcome=label,Risk score=score" --labels
        0=survived,1=sepsis --drop-missing
    """
    from fedcal.datasets.site_csv import Reading
    from fedcal.sites.joining import Kit, join

    has_reading = bool(columns or labels or drop_missing)
    reading = Reading.of(columns, labels, drop_missing) if has_reading else None
    try:
        rows, lines, made = join(kit, data, reading, new_keys=new_keys)
    except KeyboardInterrupt:
        raise terminal.Stopped(
            "interrupted; the same command continues, with the keys made so far"
        ) from None
    lines += page.block_lines("study", "joined", kit=Kit.read(kit), made=made)
    terminal.console().print("\n".join([rows.described(), *lines]))


def accept(kit: Path, file: Path, *, yes: bool = False) -> None:
    """Accept a sealed study at a site; first its questions, budget and digest are shown.

    Arguments
    ---------
    kit : KIT
        This site's folder.
    file : FILE
        The sealed study.

    Files and output
    ----------------
    yes
        Accept without a question: the words were compared before.

    Examples
    --------
    fedcal site accept alder/ sepsis.sealed
    """
    from fedcal.sites.joining import Offer

    offer, to = Offer.read(kit, file), terminal.console()
    to.print("\n".join(offer.lines()))
    if not (yes or sys.stdin.isatty()):
        raise checks.InputError("not accepted: a person must type yes (--yes for scripts)")
    if not yes:
        to.print("Compare the words by telephone with the coordinator and another site.")
        terminal.must_agree("Are they equal, and does this site take part?", "not accepted")
    offer.accept()
    to.print(f"accepted, until {offer.sealed.study.until}. Next: fedcal site start {kit}")


def start(kit: Path, data: str | None = None) -> None:
    """Run a site of an accepted study: it answers releases from rows that stay here.

    Arguments
    ---------
    kit : KIT
        This site's folder.
    data : [ROWS]
        Rows to use from now on (default: the current ones).

    Examples
    --------
    fedcal site start alder/
    fedcal site start alder/ 2027Q1.csv
    """
    from fedcal.sites.site_side import start

    # what goes into a file or a container's log tells of no rows
    start(kit, data, terminal.console(stderr=True).print if sys.stderr.isatty() else None)


def status(kit: Path, *, json: Json = False) -> None:
    """Show what a site has accepted and spent, and its next step.

    Arguments
    ---------
    kit : KIT
        This site's folder.

    Examples
    --------
    fedcal site status alder/
    """
    from fedcal.sites.site_side import status

    state = status(kit)
    jobs = state["answered"]
    shown = {k: v for k, v in state.items() if v is not None and k not in ("answered", "next")}
    shown["epsilon"] = ", ".join(f"{value:g} {name}" for name, value in state["epsilon"].items())
    shown["running"] = "yes" if state["running"] else "no"
    if "digest" in shown:
        shown["digest"] = in_words(state["digest"])
    lines: list[Any] = [f"{k}: {v}" for k, v in shown.items()]
    if jobs:
        rows = [[str(entry) for entry in job.values()] for job in jobs[-12:]]  # --json has all
        lines.append(pages.Table("", tuple(jobs[0]), rows, left=(0, 1, 3)))
    terminal.show([*lines, f"next: {state['next']}"], state, json=json)


def recalibrate(
    place: str,
    file: Path | None = None,
    *,
    release: Path | None = None,
    site: str | None = None,
    out: Path | None = None,
    overwrite: Overwrite = False,
) -> None:
    """Recalibrate a model at this site: from its own rows and a release of the other sites.

    A site of a study names its folder, which knows the rest. Nothing leaves the machine.

    Arguments
    ---------
    place : KIT
        This site's folder; with --release its labelled scores.
    file : [RELEASE]
        release.npz or prior.npz (default: the last release that came to this site).

    Rows
    ----
    release
        Outside of a study: prior.npz of fedprior, or release.npz of evaluate.
    site
        With --release: name of this site in it, so that its rows count once.

    Files and output
    ----------------
    out
        Folder for the result, readable by this user only (default: in the site's folder).

    Examples
    --------
    fedcal site recalibrate alder/
    fedcal site recalibrate --release run/prior.npz rows.csv --site Cleveland --out home
    """
    from fedcal.sites.at_home import recalibrate

    if release is None:
        from fedcal.sites.site_side import recalibrated

        checks.unused("the site's folder says it, or --release is missing", site=site)
        known, out = recalibrated(Path(place), file), out or Path(place) / "home" / "recalibrated"
    else:
        checks.unused("--release names it", RELEASE=file)
        known = {"release": release, "data": place, "site": site}
    if out is not None:
        folders.claim(out, folders.AT_HOME, overwrite=overwrite)
    result = recalibrate(**known)
    lines = [result.content["verdict"], *result.parts, *result.content["statement"]]
    if out is not None:
        result.save(out)
        file = out / "calibrator.npz"
        lines += [f"written to {out}; the calibrator is {file}: fedcal apply --calibrator {file}"]
    terminal.show(lines)


def restored(kit: Path, *, spent: str | None = None) -> None:
    """Close all open jobs of a site, and book what was spent.

    Run it after restoring a backup of a site's folder or machine, or replacing a lost folder.

    Arguments
    ---------
    kit : KIT
        This site's folder.

    Files and output
    ----------------
    spent
        EPSILON,DELTA,UNIT: budget spent that is missing in these records and is booked now; or the
        word nothing.

    Examples
    --------
    fedcal site restored alder/ --spent nothing
    fedcal site restored alder/ --spent 1.5,1e-6,example
    """
    from fedcal.clients.site.restored import restore
    from fedcal.sites.joining import STATE

    terminal.show(page.block_lines("commands", "restored", closed=restore(kit / STATE, spent)))
