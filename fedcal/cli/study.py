"""The commands `fedcal study ...`: those of the coordinator and of the server."""

import sys
from pathlib import Path
from typing import Any

from fedcal.cli.parameters import Json, Quiet
from fedcal.core import checks
from fedcal.core.naming import names_in
from fedcal.core.pages import Table
from fedcal.results.page import block_lines
from fedcal.results.terminal import Stopped, console, must_agree, print_table, progress, show
from fedcal.run.config import parse_setting
from fedcal.run.jobs import METHOD
from fedcal.sites import kits, study_file
from fedcal.sites.sealed import SEALED
from fedcal.storage.atomic import write_file


def overview() -> None:
    """Show the commands of a study: named sites, a private release a quarter, a verdict for each.

    Examples
    --------
    fedcal study
    fedcal site
    """
    from fedcal.cli.main import COMMANDS, help_of

    names = [name for name in COMMANDS if name.startswith(("study ", "site "))]
    rows = [(f"fedcal {name}", help_of(name)) for name in names]
    print_table(console(), Table("", ("command", "what"), rows, left=(0, 1)))


def init(
    file: Path,
    *,
    sites: str,
    classes: str,
    server: str,
    protect: str = "patient",
    per_year: int = 4,
    epsilon: float = 4.0,
    thresholds: str | None = None,
    model: str = "the model",
    question: str = "",
    method: str = METHOD,
    set: list[str] | None = None,
) -> None:
    """Begin a study: write its file, which holds everything that a person may edit.

    Arguments
    ---------
    file : FILE
        The study's file, NAME.toml.

    Who is asked
    ------------
    sites
        Comma-separated names of the sites; NAME=300 states a public number of patients.
    classes
        Comma-separated names of the classes, in column order; of two the last is positive.
    server
        HOST:PORT of the server, as sites reach it.
    thresholds
        Comma-separated thresholds of interest, for two classes.
    model
        Name of the model in reports.
    question
        Question that the report answers.
    method
        What a release asks: evaluate, or a method of fedcal simulate.
    set
        KEY=VALUE: a parameter of the method.

    Cost
    ----
    protect
        Unit that the budget protects: patient | customer | person | record.
    per_year
        Number of releases in a year.
    epsilon
        Privacy budget of one protected person in a year.

    Examples
    --------
    fedcal study init sepsis.toml --sites alder,birch,cedar --classes survived,sepsis --protect
        patient --per-year 4 --server host:9092
    """
    if file.suffix != ".toml":
        raise checks.InputError(f"a study's file ends in .toml, got {file}")
    if file.exists():
        raise checks.InputError(f"{file} exists: edit it, or choose another name")
    settings: Any = dict(map(parse_setting, set or ()))
    study = study_file.Study(
        file.stem,
        study_file.Model(names_in(classes), model, thresholds=_numbers(thresholds)),
        study_file.sites_of(sites),
        server,
        study_file.StudyQuestion(
            question or f"Can {model} be believed at each site?", method, settings=settings
        ),
        protect=protect,
        per_year=per_year,
        epsilon=epsilon,
    )
    plan = study.plan  # refuses what the method does not take
    write_file(file, study.to_toml())
    forecast = kits.forecast(study) if study.evaluates else [plan.event]
    console().print("\n".join([*block_lines("study", "begun", file=file), *forecast]))


def _numbers(text: str | None) -> tuple[float, ...]:
    try:
        return () if text is None else tuple(checks.number_in(part) for part in text.split(","))
    except ValueError:
        raise checks.InputError(f"--thresholds must be numbers by comma, got {text!r}") from None


def kit(file: Path) -> None:
    """Make keys, certificates and a folder for each site.

    Repeat it after a change of the study's file; keys and certificates are kept.

    Arguments
    ---------
    file : FILE
        The study's file.

    Examples
    --------
    fedcal study kit sepsis.toml
    """
    console().print("\n".join(kits.make_kits(file)))


def seal(file: Path, joins: list[Path]) -> None:
    """Enrol sites from their .join files: the study is signed, and sites compare its digest.

    Arguments
    ---------
    file : FILE
        The study's file.
    joins : SITE.join...
        The files that all sites sent back.

    Examples
    --------
    fedcal study seal sepsis.toml *.join
    """
    console().print("\n".join(kits.seal(file, joins)))


def serve(file: Path, *, control: str = "127.0.0.1:8000", listen: str | None = None) -> None:
    """Run the server of a sealed study until it is stopped; it needs no signing key.

    Arguments
    ---------
    file : FILE
        The sealed study.

    Where it listens
    ----------------
    control
        HOST:PORT at which releases are started; it has no login.
    listen
        HOST:PORT for the sites (default: the server's address in the study's file).

    Examples
    --------
    fedcal study serve sepsis.sealed
    """
    try:
        kits.serve(file, at=control, listen=listen, say=console().print)
    except KeyboardInterrupt:
        raise Stopped("the server is stopped; the same command starts it again") from None


def run(
    file: Path,
    name: str,
    *,
    rehearse: str | None = None,
    seed: int | None = None,
    without_unready: bool = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Make one release of a study and its report; or rehearse it on a file, without any site.

    Arguments
    ---------
    file : FILE
        The study's file.
    name : NAME
        Name of the release and of its folder.

    Files and output
    ----------------
    rehearse
        Rehearse on a file with the rows of all sites; no site is contacted.
    seed
        Random seed of a rehearsal.
    without_unready
        Continue without sites that cannot take part.

    Examples
    --------
    fedcal study run sepsis.toml rehearsal --rehearse rows.csv
    fedcal study run sepsis.toml 2026Q4
    """
    from fedcal.sites import run

    if rehearse is None:
        checks.unused("it is for --rehearse: sites have no seed", seed=seed)
    else:
        checks.unused("--rehearse contacts no site", without_unready=without_unready or None)
    if rehearse is None and sys.stdin.isatty() and (question := run.question_before(file, name)):
        must_agree(question, f"{name} was not asked for")
    with progress(f"{name}: waiting for the sites", quiet=quiet) as steps:
        if rehearse is not None:
            quarter = run.rehearse(file, name, rehearse, seed=seed or 0)
        else:
            quarter = run.release(
                file,
                name,
                without_unready=without_unready,
                progress=lambda done, total: steps(done, total, name),
            )
    rows = [(site, one["words"]) for site, one in quarter["sites"].items()]
    verdicts = Table("", ("site", "verdict"), rows, left=(1,))
    report = f"the report: {file.parent / name / 'report.html'}"
    show([verdicts, *quarter["next"], report], quarter, json=json, quiet=quiet)


def status(file: Path, *, json: Json = False) -> None:
    """Show the sites, releases and budget of a study; what each site must still do is named.

    Arguments
    ---------
    file : FILE
        The study's file, or the sealed study.

    Examples
    --------
    fedcal study status sepsis.toml
    """
    from fedcal.sites.status import status

    state = status(file)
    rows = [(site, one["connected"], one["next"]) for site, one in state["sites"].items()]
    sites = Table("", ("site", "connected", "next"), rows, left=(1, 2))
    show([sites, *block_lines("study", "standing", standing=state)], state, json=json)


def verify(folder: Path, *, sealed: Path | None = None, key: Path | None = None) -> None:
    """Verify a release without rows: its signature, and every number of its report.

    With the coordinator's key it is signed, once all else holds.

    Arguments
    ---------
    folder : DIR
        Folder of the release.

    Files and output
    ----------------
    sealed
        Your own sealed study (with --key by default the one beside the key's folder).
    key
        The coordinator's private key.

    Examples
    --------
    fedcal study verify 2026Q4 --sealed alder/study.sealed
    fedcal study verify 2026Q4 --key sepsis-coordinator/coordinator.pem
    """
    from fedcal.secure_aggregation.keys import read_key
    from fedcal.sites.verify import verify

    if key is None:
        console().print("\n".join(verify(folder, sealed)))
        return
    home = key.resolve().parent
    beside = home.with_name(home.name.removesuffix("-coordinator") + SEALED)
    lines = verify(folder, sealed or (beside if beside.is_file() else None), read_key(key))
    console().print("\n".join([*lines, f"{folder} is signed."]))
