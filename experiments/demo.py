"""The main job on bundled real data: `make demo`.

ResNet-110 on CIFAR-10, 100 clients with Dirichlet(0.1) label skew, every method without privacy
and at user-level epsilon = 1, five seeds: the study `demo` of `own.toml`.
"""

import argparse
import warnings
from collections.abc import Sequence
from pathlib import Path

from experiments.studies.spec import experiment
from fedcal.cli import compare as compare_command
from fedcal.core.checks import TooLittle
from fedcal.results.figures.diagrams import reliability_sheet
from fedcal.results.figures.drawing import draw, save_figure
from fedcal.results.terminal import console, progress, show
from fedcal.run.comparison import compare
from fedcal.run.simulation import simulate

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
    show(compare_command.shown(comparison, out))
    console().print(f"one run with all its files is in {out / ONE_RUN}")


if __name__ == "__main__":
    main()
