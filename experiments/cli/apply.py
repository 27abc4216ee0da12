"""Apply a calibrator or prediction sets to all rows of a file; its test part comes last."""

from __future__ import annotations

import csv
import gzip
import io
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fedcal import calibrators, datasets
from fedcal.conformal import PredictionSets, load, page
from fedcal.conformal.coverage import FEW_CLASSES, judged
from fedcal.core import classes, errors, numerics, optional, types
from fedcal.core.checks import same, unused, whole
from fedcal.core.pages import Table
from fedcal.experiments.cli.parameters import Csv, Json, Overwrite, Quiet
from fedcal.experiments.report.terminal import show
from fedcal.experiments.runs import folders
from fedcal.experiments.training.data import LabelledRows, labelled_rows, read_labelled
from fedcal.metrics import below_floor, buckets, names, summary
from fedcal.storage import artifact, atomic, npz
from fedcal.training.networks import TrainedModel, load_model

FORMATS = (".csv", ".csv.gz", ".parquet", ".npz", ".npy")
"""Suffixes that --out may have; .npy holds no ids and no labels."""
_FORMATS = ", ".join(FORMATS)


def command(
    calibrator: Path,
    data: str,
    out: Path,
    model: str | None = None,
    alpha: float | None = None,
    csv: Csv = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write probabilities, sets or logits, and show metrics where there are labels.

    Options
    -------
    calibrator
        calibrator.npz, sets.npz or model.npz.
    data
        A shipped name or a file; labels are optional.
    out
        File to write, probabilities, sets or logits: .csv, .csv.gz, .parquet, .npz, .npy.
    model
        MODULE:CLASS of the trained module: a file imports no code.
    alpha
        For sets: another share of rows without their label, from the same release.

    Examples
    --------
    fedcal apply --calibrator run/calibrator.npz --data new.csv --out probabilities.csv
    fedcal apply --calibrator run/sets.npz --data new.csv --out sets.csv
    """
    if not out.name.lower().endswith(FORMATS):
        raise errors.InputError(f"--out {out}: allowed are {_FORMATS}")
    if Path(data).exists() and out.exists() and out.samefile(data):
        raise errors.InputError(f"--out {out} is the data file itself")
    folders.claim_file(out, overwrite=overwrite)
    if artifact.form_of(calibrator) == TrainedModel.form:
        unused("a model has no sets", alpha=alpha)
        unused("a model reads features, not CSV files", csv=csv)
        _show(*_apply_model(load_model(calibrator, model), data, out), out, quiet=quiet, json=json)
        return
    unused("it names the module of a model.npz", model=model)
    fitted = fitted_in(calibrator)
    if alpha is not None:
        if not isinstance(fitted, PredictionSets):
            raise errors.InputError("--alpha is for prediction sets, and this is a calibrator")
        fitted = fitted.at(alpha)
    loaded = datasets.load(data, labels_required=False, classes=fitted.class_names, csv=csv)
    same(f"kind of scores in {data}, as {calibrator} takes them,", loaded.input, fitted.input)
    same(f"number of classes in {data}", loaded.classes, fitted.classes)
    if fitted.class_names is None and loaded.class_names is not None:
        warnings.warn(
            f"{calibrator} does not say what its classes are called: the columns of {data} are "
            f"taken as they stand ({', '.join(loaded.class_names)[:200]})",
            stacklevel=2,
        )
    rows = Rows.of(loaded)
    if isinstance(fitted, PredictionSets):
        done = _apply_sets(fitted, rows, out)
    else:
        done = _apply_calibrator(fitted, rows, out)
    test = len(rows.logits) - len(loaded.logits)
    _show(len(rows.logits), test, done, out, quiet=quiet, json=json)


def _show(rows: int, test: int, done: Told, out: Path, *, quiet: bool, json: bool) -> None:
    verb, content, lines = done
    parts = f" (metrics: the {test} of its test part)" if test else ""
    first = f"{rows:,} rows{parts} {verb}, written to {out}"
    record = {"rows": rows, "out": str(out), **content}
    show([first, *lines], record, json=json, quiet=quiet)


def fitted_in(path: Path) -> calibrators.Calibrator | PredictionSets:
    """Load the result of a run from a file: a calibrator or prediction sets."""
    return load(path) if artifact.form_of(path) == PredictionSets.form else calibrators.load(path)


@dataclass(frozen=True)
class Rows:
    """All rows of a data set, as they stood in its file; else those of its test part last.

    Attributes
    ----------
    logits, probs
        (n, c)
    labels
        (n,), or None
    judged
        the rows that metrics are of: the test part where there is one, because the others may be
        what was fitted on
    ids
        those of `client`, `subject` and `group` that the rows have, (n,) each
    names
        (c,) of the classes in the order of the columns here; None = they have numbers
    place
        (c,) the column here of each column of the file
    """

    logits: types.Floats
    probs: types.Floats
    labels: types.Integers | None
    judged: NDArray[np.bool_]
    ids: Mapping[str, NDArray[Any]]
    names: tuple[str, ...] | None
    place: list[int]

    @classmethod
    def of(cls, rows: datasets.Dataset) -> Rows:
        """Take the rows of a data set as they were read."""
        logits, probs, labels = rows.logits, rows.probs, rows.labels
        judged = np.ones(len(logits), np.bool_)
        if rows.test_logits is not None and rows.test_probs is not None:
            logits = np.concatenate([logits, rows.test_logits])
            probs = np.concatenate([probs, rows.test_probs])
            if rows.test_labels is not None:
                labels = np.concatenate([labels, rows.test_labels])
            judged = np.arange(len(logits)) >= len(rows.logits)
        known = labels if len(labels) == len(probs) else None
        given = rows.given
        if given is not None and given.order is not None:
            back = np.argsort(given.order)
            logits, probs, judged = logits[back], probs[back], judged[back]
            known = None if known is None else known[back]
        place = list(range(rows.classes))
        if rows.moved is not None:
            place = np.argsort(rows.moved).tolist()
        ids = _named(rows) if given is None else given.ids
        return cls(logits, probs, known, judged, ids, rows.class_names, place)

    @property
    def called(self) -> tuple[str, ...]:
        """Names of the classes in the order of the file's columns."""
        names = classes.class_names(self.names, len(self.place))
        return tuple(names[j] for j in self.place)

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """The columns beside the result: ids, labels, names of classes, if there are any."""
        columns = dict(self.ids)
        if self.labels is not None:
            names, labels = self.names, self.labels
            columns["labels"] = labels if names is None else np.array(names)[labels]
        if self.names is not None:
            columns["class_names"] = np.array(self.called)
        return columns


def _named(rows: datasets.Dataset) -> dict[str, NDArray[Any]]:
    """Return the ids of a shipped set's rows, which have numbers there."""
    tested, ids = rows.test_scores is not None, {}
    ways = (
        ("client", rows.client, rows.test_client, rows.client_names),
        ("group", rows.group, rows.test_group, rows.group_names),
    )
    for name, fit, test, called in ways:
        parts = [part for part in ((fit, test) if tested else (fit,)) if part is not None]
        if called is not None and len(parts) == 1 + tested:
            ids[name] = np.array(called)[np.concatenate(parts)]
    return ids


Told = tuple[str, dict[str, Any], Sequence[str | Table]]
"""What was done, numbers for `--json`, and lines and tables to show."""


def _apply_model(model: TrainedModel, data: str, out: Path) -> tuple[int, int, Told]:
    """Logits of the rows, in an .npz those of the test part apart: a data file to calibrate on."""
    fit, test = logits_of_file(model, data)
    parts = {"": fit} if test is None else {"": fit, "test_": test}
    logits = np.concatenate([part[0] for part in parts.values()])
    known = [part[1] for part in parts.values() if part[1] is not None]
    labels = np.concatenate(known) if known else None
    columns: dict[str, NDArray[Any]] = {
        f"{key}logits": part[0].astype(np.float32) for key, part in parts.items()
    }
    columns |= {f"{key}labels": part[1] for key, part in parts.items() if part[1] is not None}
    if out.suffix == ".npz":
        _write(out, columns, {}, {})
    else:
        beside = {} if labels is None else {"labels": labels}
        called = {f"logit_{j}": logits[:, j] for j in range(model.classes)}
        _write(out, {"logits": logits}, beside, called)
    judged = fit if test is None else test
    content, lines = dict[str, Any](), list[str]()
    if judged[1] is not None:
        scored = numerics.softmax(judged[0]), judged[1]
        content = {"metrics": summary(*scored), "rows_below_floor": below_floor(*scored)}
        lines = [names.line(content["metrics"], buckets.check_score("", logits.shape[1]))]
        lines += filter(None, [names.floored({"in all": content["rows_below_floor"]})])
    done = f"read by the network {model.network}", content, lines
    return len(logits), 0 if test is None else len(test[0]), done


def _apply_calibrator(fitted: calibrators.Calibrator, rows: Rows, out: Path) -> Told:
    probs, labels = fitted.calibrated(rows.logits, fitted.input), rows.labels
    content, lines = dict[str, Any](), list[str]()
    if labels is not None:
        both = {"before": rows.probs, "after": probs}
        part = rows.judged
        content = {name: summary(p[part], labels[part]) for name, p in both.items()}
        about = buckets.check_score("", probs.shape[1]), classes.called(fitted.class_names, 1)
        lines = [f"{name}: {names.line(of, *about)}" for name, of in content.items()]
        floored = {name: below_floor(p[part], labels[part]) for name, p in both.items()}
        content["rows_below_floor"] = floored
        lines += filter(None, [names.floored(floored)])
    shown_probs = probs[:, rows.place]
    columns = {f"prob_{name}": shown_probs[:, j] for j, name in enumerate(rows.called)}
    _write(out, {"probs": shown_probs}, rows.columns, columns)
    return f"calibrated by {fitted.kind}", content, lines


def _apply_sets(fitted: PredictionSets, rows: Rows, out: Path) -> Told:
    labels, groups = rows.labels, None
    if fitted.by == "group":
        ways = (rows.ids[name].astype(np.str_) for name in ("group", "client") if name in rows.ids)
        groups = next((way for way in ways if set(way.tolist()) & set(fitted.names)), None)
    sets = fitted.of_logits(rows.logits, groups)
    shown_sets, called = sets[:, rows.place], np.array(rows.called)
    comma = " " if rows.names is None else "|"  # a name may hold spaces
    texts = np.array([comma.join(called[s].tolist()) for s in shown_sets])
    columns = {"size": shown_sets.sum(axis=1), "set": texts}
    _write(out, {"sets": shown_sets}, rows.columns, columns)
    verb = f"given sets for {100 * (1 - fitted.alpha):g} % coverage"
    if labels is None:
        size = float(sets.mean() * fitted.classes)
        return verb, {"set_size": size}, [f"mean labels in a set: {size:.4g}"]
    part = rows.judged
    result = judged(sets[part], labels[part], rows.probs[part].argmax(axis=1))
    whole = result.by["whole"]["all rows"]
    line = (
        f"coverage {100 * whole.coverage:.2f} % ({100 * whole.low:.2f} to {100 * whole.high:.2f}), "
        f"mean labels in a set {whole.set_size:.4g}; the most probable label alone covers "
        f"{100 * result.correct:.2f} %"
    )
    after, lines = result.after, list[str | Table]([line])
    if result.classes <= FEW_CLASSES:
        lines.append(replace(page.class_table(result, fitted.class_names), note=""))
    short = fitted.warnings(result)
    lines += [f"Warning: {warning}" for warning in short]
    if fitted.shift is not None:
        after |= (weighted := fitted.shift.coverage(~result.hit, labels[part]))
        least = f"wanted at least {100 - 100 * fitted.alpha:g} %"
        lines += [f"{page.AT_TARGET} {100 * v:.2f} %, {least}" for v in weighted.values()]
    content = {"coverage_by": result.coverage_by, "coverage_warnings": short}
    return verb, {"before": result.before, "after": after, **content}, lines


def _write(
    out: Path,
    values: Mapping[str, NDArray[Any]],
    beside: Mapping[str, NDArray[Any]],
    columns: Mapping[str, NDArray[Any]],
) -> None:
    """Write the array as .npy, with its columns as .npz, or a table: ids, labels, columns."""
    with atomic.whole_file(out) as f:
        if out.suffix == ".npy":
            (array,) = values.values()
            np.save(f, array, allow_pickle=False)
        elif out.suffix == ".npz":
            np.savez_compressed(f, **values, **beside)  # type: ignore[arg-type]
        else:
            table = {name: beside[name] for name in datasets.IDS if name in beside}
            if "labels" in beside:
                table["label"] = beside["labels"]
            _write_table(out, f, {**table, **columns})


def _write_table(out: Path, file: IO[bytes], table: Mapping[str, NDArray[Any]]) -> None:
    """Columns as .parquet, .csv or .csv.gz."""
    if out.suffix == ".parquet":
        optional.need("pyarrow", "parquet", "writing a .parquet file")
        import pyarrow
        import pyarrow.parquet

        plain = {name: column.tolist() for name, column in table.items()}
        pyarrow.parquet.write_table(pyarrow.table(plain), file)
        return
    packed = gzip.GzipFile("", "wb", fileobj=file, mtime=0) if out.suffix == ".gz" else file
    with io.TextIOWrapper(packed, "utf-8", newline="", write_through=True) as text:
        lines = zip(*(column.tolist() for column in table.values()), strict=True)
        csv.writer(text).writerows([[*table], *lines])


Part = tuple[types.Floats, types.Integers | None]
"""Logits (n, c) and labels (n,); None = the file has none."""


def logits_of_file(model: TrainedModel, data: str) -> tuple[Part, Part | None]:
    """Return a model's logits for the rows of a file that `fedcal train` reads.

    Raises InputError if the rows cannot be read, or are none that the model takes.

    Parameters
    ----------
    data
        path, or the name of shipped features; labels may be missing from a file of features

    Returns
    -------
    tuple[Part, Part or None]
        Of the rows, and of the source's own test rows.
    """
    rows, labelled = _read(model, data)
    parts: list[Part] = []
    with errors.located(repr(data)):
        for one in (rows,) if rows.test is None else (rows, rows.test):
            whole("the number of classes", one.classes, 0, model.classes)
            parts.append((model.predict(one.x), one.y if labelled else None))
    return parts[0], (parts[1] if len(parts) > 1 else None)


def _read(model: TrainedModel, data: str) -> tuple[LabelledRows, bool]:
    """Read the rows, and return whether their labels are known."""
    path, shipped = atomic.path_of(data), data in {entry.name for entry in datasets.feature_sets()}
    arrays: dict[str, Any] = {}
    if shipped or (path.suffix.lower() == ".npz" and path.is_file()):
        with errors.located(repr(data)):
            arrays = datasets.read_feature_set(data) if shipped else dict(npz.read_npz(path))
    if "features" not in arrays:
        return read_labelled(data), True
    labelled = bool({"labels", "y"} & arrays.keys())
    with errors.located(repr(data)):
        for prefix in ("", "test_"):
            if not labelled and f"{prefix}features" in arrays:
                arrays[f"{prefix}labels"] = np.zeros(len(arrays[f"{prefix}features"]), np.int64)
        arrays.setdefault("class_names", np.arange(model.classes).astype(np.str_))
        return labelled_rows(arrays), labelled
