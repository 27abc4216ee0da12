"""Compare methods over budgets, partitions and seeds.

All stand in one table. Impossible combinations are skipped and listed.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedcal.cli import parameters
from fedcal.core import pages
from fedcal.core.checks import FedcalError, one_of
from fedcal.results import terminal
from fedcal.results.comparison import as_table
from fedcal.run.comparison import Comparison, compare, grid
from fedcal.run.comparison.run import FORMS
from fedcal.run.config import Config


@parameters.with_options(
    Config,
    but=("engine", "ray_address"),
    single=grid.ALONE,
    unset={"method": "those that calibrate, and the baselines", "epsilon": "inf,1"},
)
@parameters.with_options(grid.Grid, "seeds")
def command(
    *,
    jobs: int | None = None,
    engine: str | None = None,
    ray_address: str | None = None,
    resume: bool = False,
    config: parameters.ConfigFile = None,
    out: Path | None = None,
    table: str | None = None,
    metric: str | None = None,
    overwrite: parameters.Overwrite = False,
    no_report: parameters.NoReport = False,
    quiet: parameters.Quiet = False,
    json: parameters.Json = False,
    **options: Any,
) -> None:
    """Run and show it; the exit code is 1 where runs failed.

    Running
    -------
    jobs
        Number of processes (default: the usable cores).
    engine
        Engine of each run: inline | ray, run by run | flower | grpc (default: inline).
    ray_address
        HOST:PORT of a Ray cluster, for the engine ray.
    resume
        Continue the comparison in --out, and repeat failed runs; the grid may grow.

    Files and output
    ----------------
    out
        Folder for rows, tables and report.
    table
        latex | markdown | csv: print the table in this form, alone.
    metric
        Comma-separated metrics: columns of tables, panels of column.pdf.

    Examples
    --------
    fedcal compare --method fednewton,fedtemp,fedbbq --epsilon inf,8,1 --seeds 3 --out sweep
    fedcal compare --method 'fedbbq[weighting=none],fedbbq' --clients 100,1000
    fedcal compare --out sweep --resume
    """
    asked = {name: value for name, value in options.items() if value is not None}
    asked |= {"config": config, "out": out, "resume": resume, "overwrite": overwrite}
    asked |= {"jobs": jobs, "engine": engine, "ray_address": ray_address}
    asked["metrics"] = [name.strip() for name in metric.split(",")] if metric else ()
    if table is not None:
        one_of("--table", table, FORMS)
    with terminal.progress("comparing", quiet=quiet) as steps:
        comparison = compare(report=not no_report, progress=steps, **asked)
    if table is not None and not json:
        print(comparison.to_table(table), end="")
    else:
        lines = shown(comparison, out)
        terminal.show(lines, comparison.to_json, json=json, quiet=quiet)
    if failures := comparison.failures:
        raise FedcalError(
            f"{len(failures)} of {len(comparison.rows)} runs failed, the first with: "
            f"{failures[0]['error']}"
        )


def shown(comparison: Comparison, out: Path | None) -> Iterator[str | pages.Part]:
    """Yield the table and its statement."""
    yield comparison.verdict
    yield as_table(comparison.cells, comparison.metrics)
    yield pages.Text("", tuple(comparison.statement))
    if out is not None:
        report = f"; the report is {out / 'report.html'}" if comparison.report else ""
        yield f"written to {out}{report}"
