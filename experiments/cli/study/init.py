"""Begin a study: write its file, which holds everything that a person may edit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcal.core.checks import number_in
from fedcal.core.classes import names_in
from fedcal.core.errors import InputError
from fedcal.experiments.cli.parameters import other
from fedcal.experiments.report.terminal import console
from fedcal.experiments.study.sealed import write_text
from fedcal.experiments.study.study_file import PROTECTED, Model, Study, sites_of

EXAMPLES = (
    "fedcal study init sepsis.toml --sites alder,birch,cedar --classes survived,sepsis "
    "--protect patient --per-year 4 --server host:9092",
)

WHO, COST = "Who is asked", "Cost"


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The study's file, NAME.toml.")],
    *,
    sites: Annotated[
        str,
        other(
            WHO, "Comma-separated names of the sites; NAME=300 states a public number of patients."
        ),
    ],
    classes: Annotated[
        str,
        other(
            WHO,
            "Comma-separated names of the classes, in column order; of two the last is positive.",
        ),
    ],
    server: Annotated[str, other(WHO, "HOST:PORT of the server, as sites reach it.")],
    protect: Annotated[
        str, other(COST, "Unit that the budget protects: " + " | ".join(PROTECTED) + ".")
    ] = "patient",
    per_year: Annotated[int, other(COST, "Number of releases in a year.")] = 4,
    epsilon: Annotated[
        float, other(COST, "Privacy budget of one protected person in a year.")
    ] = 4.0,
    thresholds: Annotated[
        str | None, other(WHO, "Comma-separated thresholds of interest, for two classes.")
    ] = None,
    model: Annotated[str, other(WHO, "Name of the model in reports.")] = "the model",
    question: Annotated[str, other(WHO, "Question that the report answers.")] = "",
) -> None:
    """Write it."""
    if file.suffix != ".toml":
        raise InputError(f"a study's file ends in .toml, got {file}")
    if file.exists():
        raise InputError(f"{file} exists: edit it, or choose another name")
    study = Study(
        file.stem,
        Model(names_in(classes), model, thresholds=_numbers(thresholds)),
        sites_of(sites),
        server,
        question or f"Can {model} be believed at each site?",
        protect=protect,
        per_year=per_year,
        epsilon=epsilon,
    )
    write_text(file, study.to_toml())
    console().print(
        f"written to {file}: read and edit it. Next: fedcal study check {file} predicts the "
        f"results, fedcal study run {file} rehearsal --simulate rows.csv tries it on a file, "
        f"fedcal study kit {file} makes a folder for each site."
    )


def _numbers(text: str | None) -> tuple[float, ...]:
    try:
        return () if text is None else tuple(number_in(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--thresholds must be numbers by comma, got {text!r}") from None
