"""Commands on the files of a run, and on what ships: they compute no run themselves."""

from __future__ import annotations

import csv
import dataclasses
import io
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from fedcal import calibrators, datasets, export
from fedcal.atomic import whole_file
from fedcal.errors import InputError
from fedcal.experiments.commands.parameters import Json, Quiet
from fedcal.experiments.files import to_json
from fedcal.experiments.terminal import SHOWN, console, shown
from fedcal.metrics import summary
from fedcal.types import Floats, Integers


def report_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Of simulate or compare.")],
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write it."""
    from fedcal.experiments import report

    if (folder / "compare.json").is_file():
        written = report.write_comparison_report(folder)
    elif (folder / "result.json").is_file():
        written = report.write_report(folder)
    elif (folder / "rows.jsonl").is_file():
        raise InputError(
            f"{folder} holds an unfinished comparison; finish it: "
            f"fedcal compare --out {folder} --resume"
        )
    else:
        raise InputError(
            f"{folder} holds neither result.json (of simulate) nor compare.json (of compare)"
        )
    _show_written(written, quiet=quiet, as_json=json)


def export_command(
    calibrator: Annotated[Path, typer.Option(help="A calibrator.npz of an earlier run.")],
    out: Annotated[Path, typer.Option(help="ONNX (.onnx) or a PyTorch program (.pt2).")],
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write it."""
    export.save(calibrators.load(calibrator), out)
    _show_written(out, quiet=quiet, as_json=json)


def flower_app_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where `flwr run` will find it.")],
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write it."""
    from fedcal.experiments.flower_app import write_app

    _show_written(write_app(folder), quiet=quiet, as_json=json)


def datasets_command(quiet: Quiet = False, json: Json = False) -> None:
    """Show the list."""
    if json:
        print(to_json([dataclasses.asdict(entry) for entry in datasets.catalogue()]), end="")
        return
    if quiet:
        return
    to = console(markup=True)
    to.print("Data sets that ship with fedcal (--data NAME):")
    for entry in datasets.catalogue():
        test = f"{entry.test_rows:,} test rows" if entry.test_rows else "half of them for testing"
        clients = f", {entry.clients} natural clients" if entry.clients else ""
        clients += f", {entry.groups} groups" if entry.groups else ""
        to.print(
            f"\n[bold]{entry.name}[/bold]: {entry.description}\n"
            f"  {entry.classes} classes, {entry.rows:,} rows, {test}{clients}; {entry.input}\n"
            f"  {entry.source}, {entry.author}, {entry.year}; {entry.licence}"
        )


def apply_command(
    calibrator: Annotated[Path, typer.Option(help="A calibrator.npz of an earlier run.")],
    data: Annotated[str, typer.Option(help="A shipped name or a file; labels are optional.")],
    out: Annotated[Path, typer.Option(help="Probabilities: .npy, .npz or .csv.")],
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write the probabilities, and show metrics where there are labels."""
    if out.suffix not in (".npy", ".npz", ".csv"):
        raise InputError(f"--out {out}: allowed are .npy, .npz and .csv")
    if Path(data).exists() and out.exists() and out.samefile(data):
        raise InputError(f"--out {out} is the data file itself")
    fitted = calibrators.load(calibrator)
    rows = datasets.load(data, labels_required=False)
    if rows.input != fitted.input:
        raise InputError(
            f"{data} holds {rows.input}, but {calibrator} was fitted on {fitted.input}"
        )
    if rows.classes != fitted.classes:
        raise InputError(
            f"{data} has {rows.classes} classes, but {calibrator} was fitted on {fitted.classes}"
        )
    logits, before, labels, judged = rows.logits, rows.probs, rows.labels, slice(None)
    if rows.test_logits is not None and rows.test_probs is not None:
        judged = slice(len(logits), None)  # the others may be what the calibrator was fitted on
        logits = np.concatenate([logits, rows.test_logits])
        before = np.concatenate([before, rows.test_probs])
        if rows.test_labels is not None:
            labels = np.concatenate([labels, rows.test_labels])
    probs = fitted.calibrated(logits)
    labelled = len(labels) == len(probs)
    metrics = {}
    if labelled:
        both = {"before": before, "after": probs}
        metrics = {name: summary(p[judged], labels[judged]) for name, p in both.items()}
    _write_probs(out, probs, labels if labelled else None)
    if json:
        print(to_json({"rows": len(probs), "out": str(out), **metrics}), end="")
    elif not quiet:
        to = console()
        test = len(probs) - len(rows.logits)
        parts = f" (metrics: the {test} of its test part)" if test else ""
        to.print(f"{len(probs)} rows{parts} calibrated by {fitted.kind}, written to {out}")
        for name, values in metrics.items():
            to.print(f"{name}: " + ", ".join(f"{SHOWN[k]} {shown(k, values[k])}" for k in SHOWN))


def _write_probs(out: Path, probs: Floats, labels: Integers | None) -> None:
    with whole_file(out) as f:
        if out.suffix == ".npy":
            np.save(f, probs, allow_pickle=False)
        elif out.suffix == ".npz":
            arrays: dict[str, Any] = (
                {"probs": probs} if labels is None else {"probs": probs, "labels": labels}
            )
            np.savez_compressed(f, **arrays)
        else:
            names = [f"prob_{j}" for j in range(probs.shape[1])]
            columns = probs.tolist()
            if labels is not None:
                names = ["label", *names]
                columns = [[int(label), *row] for label, row in zip(labels, columns, strict=True)]
            with io.TextIOWrapper(f, "utf-8", newline="", write_through=True) as text:
                csv.writer(text).writerows([names, *columns])


def _show_written(path: Path, *, quiet: bool, as_json: bool) -> None:
    """Where a file was written."""
    if as_json:
        print(to_json({"out": str(path)}), end="")
    elif not quiet:
        console().print(f"written to {path}")
