"""Evaluate how good and how well calibrated a model is, from one private release.

Or read an earlier release again: another threshold, a calibrator, drift.
"""

from pathlib import Path
from typing import Any

from fedcal.core import checks
from fedcal.experiments.cli import parameters, simulate
from fedcal.experiments.cli.parameters import option
from fedcal.experiments.report import headline
from fedcal.experiments.runs import files, folders, jobs, rereading
from fedcal.experiments.runs.config import Config, load_config, merge

EXAMPLES = (
    "fedcal evaluate --data imdb-binary --epsilon 1 --unit example --out run",
    "fedcal evaluate --data rows.npz --by group --epsilon 1 --unit example",
    "fedcal evaluate --calibrator run/calibrator.npz --epsilon 1",
    "fedcal evaluate --release run/release.npz --at 'recall>=0.95'",
)


EVALUATION = "What is evaluated"
AGAIN = "Reading a release again: no run, no charge"


@parameters.with_options(Config, but=("method",))
def command(
    *,
    calibrator: Path | None = option(
        None, EVALUATION, "Evaluate the model before and after this calibrator.npz."
    ),
    only: str | None = option(
        None,
        EVALUATION,
        "accuracy: spend the complete budget on this metric, for more exact values.",
    ),
    by: str = option(
        "none", EVALUATION, "none | site | group: evaluate by client, or by the column group."
    ),
    threshold: float | None = option(
        None, EVALUATION, "Scores from this one on are predicted positive (default: above 0.5)."
    ),
    score: str | None = option(
        None,
        EVALUATION,
        "positive | confidence | classes (default: positive for two classes, else confidence).",
    ),
    bins: int | None = option(None, EVALUATION, "Number of score buckets (default: 240)."),
    estimand: str | None = option(
        None, EVALUATION, "Target of the intervals: rows | these (default: rows)."
    ),
    rows_per_subject: int | None = option(
        None,
        EVALUATION,
        "Unit subject: 1: each subject counts once | R: each row counts, up to R rows of a "
        "subject, at R times the noise (default: 1).",
    ),
    release: Path | None = option(None, AGAIN, "Read the release.npz of an earlier run again."),
    at: str | None = option(
        None, AGAIN, "Find the threshold with 'recall>=SHARE' or 'precision>=SHARE'."
    ),
    calibrate: str | None = option(
        None, AGAIN, "Fit a calibrator, written to --out: binning | isotonic | platt | beta | bbq."
    ),
    since: Path | None = option(None, AGAIN, "Test for changes since this earlier release.npz."),
    config: parameters.ConfigFile = None,
    out: Path | None = option(
        None, parameters.FILES, "Folder for result files; with --calibrate a file."
    ),
    overwrite: parameters.Overwrite = False,
    no_report: parameters.NoReport = False,
    quiet: parameters.Quiet = False,
    json: parameters.Json = False,
    **options: Any,
) -> None:
    """Run and show it, or read a release again."""
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
        if json:
            print(files.to_json(found.to_json()), end="")
        elif not quiet:
            _show(found, out)
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


def _show(reading: rereading.Reading, out: Path | None) -> None:
    """Show what was read."""
    asked, content = reading.asked, reading.to_json()
    made = "" if reading.calibrator is None else "calibrator "
    lines = [
        "" if asked is None else "All that it says: --release alone, --json, or a folder as --out.",
        reading.not_compared,
        simulate.about_intervals(content),
        *reading.release.privacy[:1],
        "" if out is None else f"{made}written to {out}",
        headline.headline(content),
    ]
    title = f"{reading.path} read again: no run, and no further charge"
    parts = reading.parts if asked is None else asked
    simulate.tell(title, reading.release.class_names, parts, lines, notes=asked is not None)
