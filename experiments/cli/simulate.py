"""Calibrate a model over simulated clients: one method, one run."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedcal.core import classes, errors, pages
from fedcal.core.options import RUNNING
from fedcal.evaluation.by_group import change_table
from fedcal.evaluation.intervals import beyond
from fedcal.experiments.cli import parameters
from fedcal.experiments.report import headline, terminal
from fedcal.experiments.report.page import words
from fedcal.experiments.report.tables import print_parts
from fedcal.experiments.runs import files, simulation
from fedcal.experiments.runs.config import Config, load_config, merge
from fedcal.experiments.runs.result import SimulationResult
from fedcal.metrics import names

EXAMPLES = (
    "fedcal simulate --epsilon 1 --out run",
    "fedcal simulate --data rows.csv --partition natural --method fedbbq --set weighting=none",
)


_STARTING = {
    "ray": ": starting Ray",
    "flower": ": starting Flower and Ray",
    "grpc": ": starting Flower and the sites",
}
_WAITING = ": waiting for the sites"


@parameters.with_options(Config)
def command(
    *,
    resume: bool = parameters.option(
        False, RUNNING, "For compare only: a single run is simply repeated."
    ),
    config: parameters.ConfigFile = None,
    out: Path | None = parameters.option(None, parameters.FILES, "Folder for result files."),
    overwrite: parameters.Overwrite = False,
    no_report: parameters.NoReport = False,
    quiet: parameters.Quiet = False,
    json: parameters.Json = False,
    **options: Any,
) -> None:
    """Run a simulation and show its result."""
    if resume:
        raise errors.InputError(
            "a single run is not resumed, it is run again: --config DIR/config.toml gives the "
            "same bits; `fedcal compare` has --resume"
        )
    asked = merge(options) if config is None else load_config(config, options)
    run_and_show(asked, out, overwrite=overwrite, report=not no_report, quiet=quiet, json=json)


def run_and_show(
    asked: Config, out: Path | None, *, overwrite: bool, report: bool, quiet: bool, json: bool
) -> None:
    """One run: its progress, then the result as text or JSON, and its files."""
    starting = _STARTING.get(asked.engine, "") if asked.control is None else _WAITING
    with terminal.progress(f"{asked.method}{starting}", quiet=quiet) as steps:

        def moved(done: int, total: int) -> None:
            steps(done, total, asked.method)

        result = simulation.simulate(
            asked.data, config=asked, out=out, overwrite=overwrite, report=report, progress=moved
        )
    if json:
        print(files.to_json(result.to_json()), end="")
    elif not quiet:
        show(result, out)


def show(result: SimulationResult, out: Path | None) -> None:
    """Print the run, its metrics and its guarantee."""
    judged = result.judged
    seen = "Who sees what, and what is not protected: privacy in result.json and --json"
    demanded = {*judged.get("metrics", ())} & {*names.ON_DEMAND}
    lines = [
        "More metrics: by --json, and in the report of --out" if demanded else "",
        about_intervals(judged),
        *(f"Warning: {warning}" for warning in judged.get("coverage_warnings", ())),
        *judged.get("sets", {}).get("guarantee", ()),
        f"{result.said['guarantee']} {seen} (docs/guide/privacy.md)",
        names.floored(judged.get("rows_below_floor", {})),
        result.said["sent"],
        "" if out is None else f"written to {out}",
        headline.headline(result.record),
    ]
    shown = [part for part in _parts(result) if isinstance(part, pages.Table)]
    tell(result.said["title"], result.class_names, shown, lines)


def about_intervals(result: Mapping[str, Any]) -> str:
    """Return sentences on what is counted, how many, and what the intervals cover and exclude.

    From the keys of `result.json`; "" if it has none.
    """
    known = "estimand" in result
    return words("intervals", result=result, beyond=beyond)["about"][0] if known else ""


def tell(
    title: str,
    class_names: tuple[str, ...] | None,
    parts: Iterable[object],
    lines: Iterable[str],
    notes: bool = False,
) -> None:
    """Print what a run or a release is of, its tables, and the sentences that are not empty."""
    to = terminal.console()
    to.print(title)
    if class_names is not None:
        to.print(classes.in_a_line(class_names))
    print_parts(to, parts, notes)
    to.print("\n".join(filter(None, lines)))


def _parts(result: SimulationResult) -> list[Any]:
    """Metrics before and after a calibrator, or what tables another artifact has."""
    if not result.artifact.rescores or result.test is None:
        return result.parts
    about = names.about(result.told)
    columns = ("test rows", *(names.column(metric, *about) for metric in names.TEST_ROWS))
    both = {"before": result.before, "after": result.after}
    rows = [(name, *(names.shown(m, of[m]) for m in names.TEST_ROWS)) for name, of in both.items()]
    changed = result.judged.get("clients_change", {})
    changes = [change_table(changed, "client")] if changed.get("sites") else []
    return [pages.Table("", columns, rows, left=(0,)), *changes]
