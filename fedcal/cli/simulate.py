"""Calibrate a model over simulated clients; one method, one run."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedcal.cli import parameters
from fedcal.core import naming, pages
from fedcal.evaluation.intervals import beyond
from fedcal.metrics import names
from fedcal.results import headline, terminal
from fedcal.results.page import words
from fedcal.run import simulation
from fedcal.run.config import Config, load_config, merge
from fedcal.run.result import SimulationResult


@parameters.with_options(Config)
def command(
    *,
    config: parameters.ConfigFile = None,
    out: Path | None = None,
    overwrite: parameters.Overwrite = False,
    no_report: parameters.NoReport = False,
    quiet: parameters.Quiet = False,
    json: parameters.Json = False,
    **options: Any,
) -> None:
    """Run a simulation and show its result.

    Files and output
    ----------------
    out
        Folder for result files.

    Examples
    --------
    fedcal simulate --epsilon 1 --out run
    fedcal simulate --data rows.csv --partition natural --method fedbbq --set weighting=none
    """
    asked = merge(options) if config is None else load_config(config, options)
    run_and_show(asked, out, overwrite=overwrite, report=not no_report, quiet=quiet, json=json)


def run_and_show(
    asked: Config, out: Path | None, *, overwrite: bool, report: bool, quiet: bool, json: bool
) -> None:
    """One run: its progress, then the result as text or JSON, and its files."""
    with terminal.progress(f"{asked.method} by engine {asked.engine}", quiet=quiet) as steps:
        result = simulation.simulate(
            asked.data, config=asked, out=out, overwrite=overwrite, report=report, progress=steps
        )
    terminal.show(shown(result, out), result.to_json, json=json, quiet=quiet)


def shown(result: SimulationResult, out: Path | None) -> Iterator[str | pages.Table]:
    """Yield what is printed of a run: what it was, its metrics and its guarantee."""
    evaluated = result.evaluated
    yield result.sentences["title"]
    if result.class_names is not None:
        yield naming.in_a_line(result.class_names)
    yield from (replace(p, note="") for p in _parts(result) if isinstance(p, pages.Table))
    seen = "Who sees what, and what is not protected: privacy in result.json and --json"
    demanded = {*evaluated.get("metrics", ())} & {*names.ON_DEMAND}
    lines = [
        "More metrics: by --json, and in the report of --out" if demanded else "",
        about_intervals(evaluated),
        *(f"Warning: {warning}" for warning in evaluated.get("coverage_warnings", ())),
        *evaluated.get("sets", {}).get("guarantee", ()),
        f"{result.sentences['guarantee']} {seen} (docs/guide/privacy.md)",
        names.floored(evaluated.get("rows_below_floor", {})),
        result.sentences["sent"],
        "" if out is None else f"written to {out}",
        headline.headline(result.record),
    ]
    yield from filter(None, lines)


def about_intervals(result: Mapping[str, Any]) -> str:
    """Return sentences on what is counted, how many, and what the intervals cover and exclude.

    From the keys of `result.json`; "" if it has none.
    """
    known = "estimand" in result
    return words("intervals", result=result, beyond=beyond)["about"][0] if known else ""


def _parts(result: SimulationResult) -> list[Any]:
    """Metrics before and after a calibrator, or what tables another artifact has."""
    if not result.artifact.rescores or result.test is None:
        return result.parts
    about = names.about(result.summary)
    columns = ("test rows", *(names.column(metric, *about) for metric in names.TEST_ROWS))
    both = {"before": result.before, "after": result.after}
    rows = [(name, *(names.shown(m, of[m]) for m in names.TEST_ROWS)) for name, of in both.items()]
    return [pages.Table("", columns, rows, left=(0,))]
