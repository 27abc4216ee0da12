"""Evaluate how good and how well calibrated a model is, from one private release.

Or read an earlier release again: another threshold, a calibrator, drift.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedcal.core import checks, naming, pages
from fedcal.experiments.cli import parameters, simulate
from fedcal.experiments.report import headline, terminal
from fedcal.experiments.runs import folders, jobs, rereading
from fedcal.experiments.runs.config import Config, load_config, merge


@parameters.with_options(Config, but=("method",))
def command(
    *,
    calibrator: Path | None = None,
    only: str | None = None,
    by: str = "none",
    threshold: float | None = None,
    score: str | None = None,
    bins: int | None = None,
    estimand: str | None = None,
    rows_per_subject: int | None = None,
    release: Path | None = None,
    at: str | None = None,
    calibrate: str | None = None,
    since: Path | None = None,
    config: parameters.ConfigFile = None,
    out: Path | None = None,
    overwrite: parameters.Overwrite = False,
    no_report: parameters.NoReport = False,
    quiet: parameters.Quiet = False,
    json: parameters.Json = False,
    **options: Any,
) -> None:
    """Run and show it, or read a release again.

    What is evaluated
    -----------------
    calibrator
        Evaluate the model before and after this calibrator.npz.
    only
        accuracy: spend the complete budget on this metric, for more exact values.
    by
        none | site | group: evaluate by client, or by the column group.
    threshold
        Scores from this one on are predicted positive (default: above 0.5).
    score
        positive | confidence | classes (default: positive for two classes, else confidence).
    bins
        Number of score buckets (default: 240).
    estimand
        Target of the intervals: rows | these (default: rows).
    rows_per_subject
        Unit subject: 1: each subject counts once | R: each row counts, up to R rows of a subject,
        at R times the noise (default: 1).

    Reading a release again: no run, no charge
    ------------------------------------------
    release
        Read the release.npz of an earlier run again.
    at
        Find the threshold with 'recall>=SHARE' or 'precision>=SHARE'.
    calibrate
        Fit a calibrator, written to --out: platt | beta.
    since
        Test for changes since this earlier release.npz.

    Files and output
    ----------------
    out
        Folder for result files; with --calibrate a file.

    Examples
    --------
    fedcal evaluate --data imdb-binary --epsilon 1 --unit example --out run
    fedcal evaluate --data rows.npz --by group --epsilon 1 --unit example
    fedcal evaluate --calibrator run/calibrator.npz --epsilon 1
    fedcal evaluate --release run/release.npz --at 'recall>=0.95'
    """
    of_runs: dict[str, Any] = {"calibrator": calibrator, "score": score, "bins": bins, "only": only}
    of_runs |= {"estimand": estimand, "rows_per_subject": rows_per_subject}
    if release is not None:
        given = {**options, **of_runs, "by": None if by == "none" else by}
        checks.unused("--release reads what a run left", **given, config=config)
        if calibrate is not None:
            out = checks.needed("--out FILE", out, "--calibrate writes a calibrator to a file")
            folders.claim_file(out, overwrite=overwrite)
        elif out is not None:
            folders.claim(out, folders.READING, overwrite=overwrite, report=not no_report)
        how: Any = calibrate  # checked where it is used
        found = rereading.reread(release, threshold=threshold, at=at, calibrate=how, since=since)
        if out is not None:
            found.save(out, report=not no_report)
        terminal.show(_shown(found, release, out), found.to_json, json=json, quiet=quiet)
        return
    of_releases = {"at": at, "calibrate": calibrate, "since": since}
    checks.unused("it reads an earlier run's release: give --release FILE", **of_releases)
    own = {"set": jobs.settings(by, threshold=threshold, **of_runs)}
    base = {"method": jobs.METHOD, **own}
    known = merge(base, options) if config is None else load_config(config, own, options)
    if not jobs.evaluates(known.method):
        checks.same("method of an evaluation (others: fedcal simulate)", known.method, jobs.METHOD)
    simulate.run_and_show(
        known, out, overwrite=overwrite, report=not no_report, quiet=quiet, json=json
    )


def _shown(
    reading: rereading.Reading, release: Path, out: Path | None
) -> Iterator[str | pages.Part]:
    """Yield what is printed of a release that was read again."""
    yield f"{release} read again: no run, and no further charge"
    if reading.release.class_names is not None:
        yield naming.in_a_line(reading.release.class_names)
    content, asked = reading.to_json(), reading.asked
    for part in reading.parts if asked is None else asked:
        if asked is None and isinstance(part, pages.Table):
            yield replace(part, note="")
        else:
            yield part
    if asked is not None:
        yield "All that it says: --release alone, --json, or a folder as --out."
    about = (reading.not_compared, simulate.about_intervals(content), *reading.release.privacy[:1])
    yield from filter(None, about)
    if out is not None:
        what = "" if reading.calibrator is None else "calibrator "
        yield f"{what}written to {out}"
    yield headline.headline(content)
