"""Calibrate a model over simulated clients: one method, one run."""

from pathlib import Path
from typing import Any

from fedcal.core import classes, errors, pages
from fedcal.core.options import RUNNING
from fedcal.evaluation.by_group import change_table
from fedcal.experiments.cli import parameters
from fedcal.experiments.report import headline, terminal
from fedcal.experiments.report.tables import print_table
from fedcal.experiments.runs import files, jobs, simulation
from fedcal.experiments.runs import result as results
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
    to = terminal.console()
    to.print(results.title(result.config, result.sites))
    if result.class_names is not None:
        to.print(classes.in_a_line(result.class_names))
    for table in _tables(result):
        print_table(to, table)
    if {*result.judged.get("metrics", ())} & {*names.ON_DEMAND}:
        to.print("More metrics: by --json, and in the report of --out")
    if about := jobs.about_intervals(result.judged):
        to.print(about)
    for warning in result.judged.get("coverage_warnings", ()):
        to.print(f"Warning: {warning}")
    for sentence in result.judged.get("sets", {}).get("guarantee", ()):
        to.print(sentence)
    to.print(
        f"{results.protection(result.privacy)} Who sees what, and what is not protected: "
        "privacy in result.json and --json (docs/guide/privacy.md)"
    )
    if floored := names.floored(result.judged.get("rows_below_floor", {})):
        to.print(floored)
    to.print(results.sent(result))
    if out is not None:
        to.print(f"written to {out}")
    to.print(headline.headline(result.to_json()))


def _tables(result: SimulationResult) -> list[pages.Table]:
    """Metrics before and after a calibrator, or what tables another artifact has."""
    if not result.artifact.rescores or result.test is None:
        tables = [p for p in result.parts if isinstance(p, pages.Table)]
        return [p for p in tables if not p.title.startswith(names.MORE)]
    about = names.about(result.told)
    columns = ("test rows", *(names.column(metric, *about) for metric in names.TEST_ROWS))
    both = {"before": result.before, "after": result.after}
    rows = [(name, *(names.shown(m, of[m]) for m in names.TEST_ROWS)) for name, of in both.items()]
    tables = [pages.Table("", columns, rows, left=(0,))]
    if (changed := result.judged.get("clients_change", {})).get("sites"):
        tables.append(change_table(changed, "client"))
    return tables
