"""Evaluate a model from one private release: how good and how well calibrated it is.

Or read an earlier release again, with another threshold or a calibrator.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from fedcal.cli import parameters, simulate
from fedcal.core import checks, naming, pages
from fedcal.evaluation import page
from fedcal.results import headline, terminal
from fedcal.run import folders, jobs, rereading
from fedcal.run.config import Config, load_config, merge


@parameters.with_options(Config, but=("method", "preset"))
def command(
    *,
    calibrator: Path | None = None,
    by: str = "none",
    threshold: float | None = None,
    score: str | None = None,
    bins: int | None = None,
    rows_per_subject: int | None = None,
    release: Path | None = None,
    calibrate: str | None = None,
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
    by
        none | site | group: evaluate by client, or by the column group.
    threshold
        Scores from this one on are predicted positive (default: above 0.5).
    score
        positive | confidence | classes (default: positive for two classes, else confidence).
    bins
        Number of score buckets (default: 240).
    rows_per_subject
        Unit subject: 1: each subject counts once | R: each row counts, up to R rows of a subject,
        at R times the noise (default: 1).

    Reading a release again: no run, no charge
    ------------------------------------------
    release
        Read the release.npz of an earlier run again.
    calibrate
        Fit a calibrator, written to --out: platt | beta.

    Files and output
    ----------------
    out
        Folder for result files; with --release --calibrate a file.

    Examples
    --------
    fedcal evaluate --data imdb-binary --epsilon 1 --unit example --out run
    fedcal evaluate --data rows.npz --by group --epsilon 1 --unit example
    fedcal evaluate --calibrator run/calibrator.npz --epsilon 1
    fedcal evaluate --release run/release.npz --threshold 0.3
    """
    of_runs: dict[str, Any] = {"calibrator": calibrator, "score": score, "bins": bins}
    of_runs["rows_per_subject"] = rows_per_subject
    if release is not None:
        given = {**options, **of_runs, "by": None if by == "none" else by}
        checks.unused("--release reads what a run left", **given, config=config)
        checks.unused("only --calibrate writes a file", out=out if calibrate is None else None)
        read = rereading.read_release(release)
        written = ""
        if calibrate is not None:
            file = checks.needed("--out FILE", out, "--calibrate writes a calibrator to a file")
            folders.claim_file(file, overwrite=overwrite)
            curve: Any = calibrate  # checked where it is used
            rereading.calibrator_of(read, curve).save(file)
            written = f"calibrator written to {file}"
        found, names = read.findings(threshold), read.class_names
        content = {**found.to_json(), "class_names": None if names is None else list(names)}
        lines: list[Any] = [
            f"{release} read again: no run, and no further charge",
            "" if names is None else naming.in_a_line(names),
            *(
                replace(part, note="")
                for part in page.parts(found, read.histograms, names)
                if isinstance(part, pages.Table)
            ),
            simulate.about_intervals(content),
            *read.privacy[:1],
            written,
            headline.headline(content),
        ]
        record = {**content, "statement": list(read.privacy)}
        terminal.show(filter(None, lines), record, json=json, quiet=quiet)
        return
    checks.unused("it reads an earlier run's release: give --release FILE", calibrate=calibrate)
    own = {"set": jobs.settings(by, threshold=threshold, **of_runs)}
    base = {"method": jobs.METHOD, **own}
    known = merge(base, options) if config is None else load_config(config, own, options)
    if not jobs.evaluates(known.method):
        checks.same("method of an evaluation (others: fedcal simulate)", known.method, jobs.METHOD)
    simulate.run_and_show(
        known, out, overwrite=overwrite, report=not no_report, quiet=quiet, json=json
    )
