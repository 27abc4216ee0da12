"""The main job on bundled real data: `make demo`.

ResNet-110 on CIFAR-10, 100 clients with Dirichlet(0.1) label skew, every method without privacy
and at user-level epsilon = 1, five seeds: the study `demo` of `own.toml`.
"""

import argparse
import warnings
from collections.abc import Sequence
from pathlib import Path

from experiments.studies.spec import experiment
from fedcal.core.checks import TooLittle
from fedcal.results.comparison import as_table
from fedcal.results.figures.diagrams import reliability_sheet
from fedcal.results.figures.drawing import draw, save_figure
from fedcal.results.terminal import progress, show
from fedcal.run.comparison import compare
from fedcal.run.simulation import simulate

SHOWN, METRICS = ("none", "pooled-temperature", "fednewton"), ("accuracy", "ece", "nll")
"""Methods and metrics that are printed; the report has all."""

ONE_RUN = "fednewton-epsilon-1"
"""Folder of the one run that is written with all its files."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the comparison, show it and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo-out"))
    out: Path = parser.parse_args(arguments).out
    options = experiment("demo").options
    with progress("calibrating") as steps, warnings.catch_warnings():
        warnings.simplefilter("ignore", TooLittle)  # the statement below the table says it, too
        comparison = compare(progress=steps, **options)
    comparison.save(out)
    run = simulate(options["data"], method="fednewton", epsilon=1.0)
    run.save(out / ONE_RUN)  # each time anew, as the comparison
    title = f"{run.title}: test rows"
    for name, dark in (("reliability.png", False), ("reliability-dark.png", True)):  # of docs/img
        save_figure(draw(reliability_sheet(run.reliability, title), dark), out / name, dark=dark)
    shown = [c for c in comparison.cells if c["method"] in SHOWN]
    cells = [c for c in shown if c["baseline"] or c["epsilon"] == 1]
    before, pooled, after = (f"{100 * c['after']['ece']['mean']:.2f}" for c in cells)
    learnt = (
        "100 clients made a real network's probabilities true and showed nobody a row: at epsilon "
        f"= 1 for each client its ECE falls from {before} to {after} %; with all rows in one place "
        f"it is {pooled} %."
    )
    where = f"All methods: {out / 'report.html'}; one run with its files: {out / ONE_RUN}"
    show([learnt, as_table(cells, METRICS), where])


if __name__ == "__main__":
    main()
