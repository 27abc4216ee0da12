"""Make features of images or texts by a public model, for fedcal train."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from fedcal.core.checks import one_of, whole
from fedcal.core.errors import InputError
from fedcal.experiments.cli.parameters import FILES, Json, Overwrite, Quiet, other
from fedcal.experiments.report import terminal
from fedcal.experiments.research.corruptions import CORRUPTIONS
from fedcal.experiments.runs.files import to_json
from fedcal.experiments.runs.folders import claim_file
from fedcal.experiments.runs.options import DATA
from fedcal.experiments.training.extraction.extract import extract
from fedcal.experiments.training.extraction.extractors import EXTRACTORS
from fedcal.experiments.training.extraction.inputs import kind_of, read_source
from fedcal.storage.atomic import refuse_out, whole_file

EXAMPLES = (
    "fedcal features images.npz --model random-filters --out features.npz",
    "fedcal features cifar10 --model efficientnet-lite0 --size 512 --corruption all "
    "--out features.npz",
    "fedcal features reviews.csv --model wordllama --out features.npz",
)


def command(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="Images or a table of texts, with labels.")
    ],
    model: Annotated[str, other(DATA, "efficientnet-lite0 | random-filters | wordllama.")],
    out: Annotated[Path, other(FILES, "The .npz file to write.")],
    overwrite: Overwrite = False,
    size: Annotated[
        int | None,
        other(DATA, "Size of a random projection, stored as int8 (default: none)."),
    ] = None,
    corruption: Annotated[
        str | None,
        other(
            DATA,
            "Comma-separated corruptions of the test rows, or all (default: none).",
        ),
    ] = None,
    severity: Annotated[
        int | None, other(DATA, "Severity of the corruptions, 1 to 5 (default: 3).")
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Make the features, write them, and say what they are."""
    claim_file(out, overwrite=overwrite)
    kind = EXTRACTORS[one_of("model", model, EXTRACTORS)]
    if kind.reads != kind_of(source):
        fit = ", ".join(name for name, other in EXTRACTORS.items() if other.reads != kind.reads)
        raise InputError(f"{source} holds {kind_of(source)}s; models that read these: {fit}")
    if size is not None:
        whole("size", size, 2, 2**16)
    if severity is not None and corruption is None:
        raise InputError("severity has no effect here: no corruption is given")
    names = CORRUPTIONS if corruption == "all" else tuple((corruption or "").split(","))
    level = whole("severity", 3 if severity is None else severity, 1, 5)
    refuse_out(out)
    with terminal.progress("features", quiet=quiet) as moved:
        extractor = kind()
        arrays = extract(
            read_source(source), extractor, size, names if corruption else (), level, moved
        )
    with whole_file(out) as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    rows, width = arrays["features"].shape
    tests = len(arrays.get("test_features", ()))
    if json:
        facts = {"out": str(out), "rows": rows, "test_rows": tests, "features": width}
        print(to_json(facts), end="")
    elif not quiet:
        to = terminal.console()
        to.print(f"{rows:,} rows and {tests:,} test rows of {width} features by {model}")
        to.print(f"written to {out}; train on it: fedcal train --data {out}")
