"""What the commands do once their options are parsed: run, show, write."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from fedcal import calibrators, datasets, pages
from fedcal.atomic import whole_file
from fedcal.errors import FedcalError, InputError
from fedcal.experiments.config import load_config, merge, parse_setting
from fedcal.experiments.files import OWN_PAGES, check_out, to_json
from fedcal.experiments.result import SimulationResult
from fedcal.experiments.simulation import simulate
from fedcal.experiments.terminal import SHOWN, console, print_table, progress, shown
from fedcal.metrics import summary
from fedcal.types import Floats, Integers

if TYPE_CHECKING:
    from fedcal.experiments.comparison import Comparison


def run_simulate(
    options: Mapping[str, Any],
    settings: list[str],
    config_file: Path | None,
    out: Path | None,
    *,
    quiet: bool,
    as_json: bool,
) -> None:
    """`fedcal simulate`."""
    given = {**options, "set": dict(parse_setting(text) for text in settings)}
    config = merge(given) if config_file is None else load_config(config_file, given)
    if out is not None:
        check_out(out, foreign="rows.jsonl")
    starting = ": starting Flower and Ray" if config.engine == "ray" else ""
    with progress(f"{config.method}{starting}", quiet=quiet) as steps:

        def moved(done: int, total: int) -> None:
            steps(done, total, config.method)

        result = simulate(config.data, config=config, out=out, progress=moved)
    if as_json:
        print(to_json(result.to_json()), end="")
    elif not quiet:
        _show(result, out)


def _show(result: SimulationResult, out: Path | None) -> None:
    to, c, privacy = console(), result.config, result.privacy
    rows = "" if not c.rounds else f", rounds {c.rounds}, sampling rate {c.sampling_rate:g}"
    to.print(f"{c.method} on {c.data}, clients {c.clients}, {c.partition}{rows}")
    for table in _tables(result):
        to.print(table)
    for line in privacy["statement"]:
        to.print(f"- {line}")
    sent = result.communication
    to.print(
        f"{sent['bytes_up_per_client']} bytes up and {sent['bytes_down_per_client']} down per "
        f"client{'' if result.seconds is None else f', {result.seconds:.3f} s'}"
    )
    if out is not None:
        to.print(f"written to {out}")


def _tables(result: SimulationResult) -> list[Table]:
    """Metrics before and after a calibrator, or what tables another artifact has."""
    if result.artifact.form not in OWN_PAGES:
        from fedcal.experiments.report.artifact import shown_entry

        found = []
        for part in result.artifact.page():
            if isinstance(part, pages.Table):
                lines = Table(*part.columns, title=part.title)
                for row in part.rows:
                    lines.add_row(*map(shown_entry, row))
                found.append(lines)
        return found
    table = Table()
    table.add_column("test rows")
    for heading in SHOWN.values():
        table.add_column(heading, justify="right")
    for name, metrics in (("before", result.before), ("after", result.after)):
        table.add_row(name, *(shown(k, metrics[k]) for k in SHOWN))
    return [table]


def run_compare(
    options: Mapping[str, Any],
    settings: list[str],
    config_file: Path | None,
    out: Path | None,
    *,
    quiet: bool,
    as_json: bool,
) -> None:
    """`fedcal compare`."""
    from fedcal.experiments.comparison import compare
    from fedcal.experiments.comparison.result import DONE
    from fedcal.experiments.runs.ask import ask_about_unfinished

    if out is not None and not options.get("resume") and not quiet:
        out, resume = ask_about_unfinished(out, DONE)
        options = {**options, "resume": resume}
    given = {**options, "set": dict(parse_setting(text) for text in settings)}
    with progress("comparing", quiet=quiet) as steps:
        comparison = compare(config=config_file, out=out, progress=steps, **given)
    if as_json:
        print(to_json(comparison.to_json()), end="")
    elif not quiet:
        show_comparison(comparison, out)
    if failures := comparison.failures:
        raise FedcalError(
            f"{len(failures)} of {len(comparison.rows)} runs failed, the first with: "
            f"{failures[0]['error']}"
        )


def show_comparison(comparison: Comparison, out: Path | None) -> None:
    """The table and its statement on the terminal."""
    from fedcal.experiments.comparison.table import as_table

    to = console()
    to.print(comparison.headline)
    print_table(to, as_table(comparison.cells))
    for line in comparison.statement:
        to.print(f"- {line}")
    if out is not None:
        to.print(f"written to {out}; the report is {out / 'report.html'}")


def run_report(folder: Path, *, quiet: bool, as_json: bool) -> None:
    """`fedcal report`."""
    from fedcal.experiments.report import write_comparison_report, write_report

    if (folder / "compare.json").is_file():
        report = write_comparison_report(folder)
    elif (folder / "result.json").is_file():
        report = write_report(folder)
    elif (folder / "rows.jsonl").is_file():
        raise InputError(
            f"{folder} holds an unfinished comparison; finish it: "
            f"fedcal compare --out {folder} --resume"
        )
    else:
        raise InputError(
            f"{folder} holds neither result.json (of simulate) nor compare.json (of compare)"
        )
    _written(report, quiet=quiet, as_json=as_json)


def run_export(calibrator: Path, out: Path, *, quiet: bool, as_json: bool) -> None:
    """`fedcal export`."""
    from fedcal import export

    export.save(calibrators.load(calibrator), out)
    _written(out, quiet=quiet, as_json=as_json)


def run_flower_app(folder: Path, *, quiet: bool, as_json: bool) -> None:
    """`fedcal flower-app`."""
    from fedcal.experiments.flower_app import write_app

    _written(write_app(folder), quiet=quiet, as_json=as_json)


def _written(path: Path, *, quiet: bool, as_json: bool) -> None:
    if as_json:
        print(to_json({"out": str(path)}), end="")
    elif not quiet:
        console().print(f"written to {path}")


def run_apply(calibrator: Path, data: str, out: Path, *, quiet: bool, as_json: bool) -> None:
    """`fedcal apply`."""
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
        metrics = {
            "before": summary(before[judged], labels[judged]),
            "after": summary(probs[judged], labels[judged]),
        }
    _write_probs(out, probs, labels if labelled else None)
    if as_json:
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


def run_datasets(*, quiet: bool, as_json: bool) -> None:
    """`fedcal datasets`."""
    entries = [dataclasses.asdict(entry) for entry in datasets.catalogue()]
    if as_json:
        print(to_json(entries), end="")
        return
    if quiet:
        return
    to = console(markup=True)
    to.print("Data sets that ship with fedcal (--data NAME):")
    for entry in datasets.catalogue():
        test = f"{entry.test_rows:,} test rows" if entry.test_rows else "half of them for testing"
        clients = f", {entry.clients} natural clients" if entry.clients else ""
        to.print(
            f"\n[bold]{entry.name}[/bold]: {entry.description}\n"
            f"  {entry.classes} classes, {entry.rows:,} rows, {test}{clients}; {entry.input}\n"
            f"  {entry.source}, {entry.author}, {entry.year}; {entry.licence}"
        )
