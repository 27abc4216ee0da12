"""Apply a calibrator or prediction sets to all rows of a file; its test part comes last."""

from __future__ import annotations

import csv
import gzip
import io
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedcal import calibrators, datasets
from fedcal.conformal import PredictionSets, load
from fedcal.core import checks, imports, naming, numerics
from fedcal.core.pages import Part, Table
from fedcal.experiments.cli.parameters import Csv, Json, Overwrite, Quiet
from fedcal.experiments.report.terminal import show
from fedcal.experiments.runs import folders
from fedcal.experiments.training.data import labelled_rows, read_labelled
from fedcal.metrics import below_floor, binning, names, summary
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
        raise checks.InputError(f"--out {out}: allowed are {_FORMATS}")
    if Path(data).exists() and out.exists() and out.samefile(data):
        raise checks.InputError(f"--out {out} is the data file itself")
    folders.claim_file(out, overwrite=overwrite)
    fitted: TrainedModel | PredictionSets | calibrators.Calibrator
    if artifact.form_of(calibrator) == TrainedModel.form:
        checks.unused("a model has no sets", alpha=alpha)
        checks.unused("a model reads features, not CSV files", csv=csv)
        fitted = load_model(calibrator, model)
        rows = rows_of_model(fitted, data)
    else:
        checks.unused("it names the module of a model.npz", model=model)
        fitted = fitted_in(calibrator)
        if alpha is not None:
            if not isinstance(fitted, PredictionSets):
                raise checks.InputError("--alpha is for prediction sets, and this is a calibrator")
            fitted = fitted.at(alpha)
        loaded = datasets.load(data, labels_required=False, classes=fitted.class_names, csv=csv)
        checks.same(
            f"kind of scores in {data}, as {calibrator} takes them,", loaded.input, fitted.input
        )
        checks.same(f"number of classes in {data}", loaded.classes, fitted.classes)
        if fitted.class_names is None and loaded.class_names is not None:
            warnings.warn(
                f"{calibrator} does not say what its classes are called: the columns of {data} are "
                f"taken as they stand ({', '.join(loaded.class_names)[:200]})",
                stacklevel=2,
            )
        rows = Rows.of(loaded)
    if isinstance(fitted, TrainedModel):
        done = _apply_model(fitted, rows)
    elif isinstance(fitted, PredictionSets):
        done = _apply_sets(fitted, rows)
    else:
        done = _apply_calibrator(fitted, rows)
    _write(out, rows, done)
    test = rows.judged.sum()
    parts = "" if rows.judged.all() else f" (metrics: the {test} of its test part)"
    if "subject" in rows.ids:
        parts = f" of {len(np.unique(rows.ids['subject'])):,} subjects{parts}"
    first = f"{len(rows.logits):,} rows{parts} {done.verb}, written to {out}"
    record = {"rows": len(rows.logits), "out": str(out), **done.content}
    show([first, *(line for line in done.lines if line)], record, json=json, quiet=quiet)


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

    logits: numerics.Floats
    probs: numerics.Floats
    labels: numerics.Integers | None
    judged: NDArray[np.bool_]
    ids: Mapping[str, NDArray[Any]]
    names: tuple[str, ...] | None
    place: list[int]

    @classmethod
    def of(cls, rows: datasets.Dataset) -> Rows:
        """Take the rows of a data set as they were read."""
        logits = _joined(rows.logits, rows.test_logits)
        probs = _joined(rows.probs, rows.test_probs)
        labels = _joined(rows.labels, rows.test_labels)
        known = labels if len(labels) == len(probs) else None
        judged = np.arange(len(logits)) >= (0 if rows.test_logits is None else len(rows.logits))
        given = rows.given
        if given is not None and given.order is not None:
            back = np.argsort(given.order)
            logits, probs, judged = logits[back], probs[back], judged[back]
            known = None if known is None else known[back]
        place = range(rows.classes) if rows.moved is None else np.argsort(rows.moved).tolist()
        ids = {} if given is None else given.ids
        if given is None:  # a shipped set has numbers
            client = _joined(rows.client, rows.test_client), rows.client_names
            group = _joined(rows.group, rows.test_group), rows.group_names
            ids = {
                name: np.array(called)[numbers]
                for name, (numbers, called) in {"client": client, "group": group}.items()
                if called is not None and len(numbers) == len(logits)
            }
        return cls(logits, probs, known, judged, ids, rows.class_names, [*place])

    def test(self, groups: NDArray[Any] | None = None) -> artifact.Holdout | None:
        """Return the rows that metrics are of, perhaps in groups; None = they have no labels."""
        if self.labels is None:
            return None
        part, by = self.judged, dict[str, Any]()
        if groups is not None:
            called, by["group"] = np.unique(groups[part], return_inverse=True)
            by["group_names"] = tuple(called.tolist())
        return artifact.Holdout(self.logits[part], self.probs[part], self.labels[part], **by)

    @property
    def called(self) -> tuple[str, ...]:
        """Names of the classes in the order of the file's columns."""
        names = naming.class_names(self.names, len(self.place))
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


def _joined(*parts: NDArray[Any] | None) -> NDArray[Any]:
    return np.concatenate([part for part in parts if part is not None] or [np.zeros(0, np.int64)])


class Done(NamedTuple):
    """What was made of the rows.

    Attributes
    ----------
    verb
        what was done
    arrays
        by name, each of a row for a row
    columns
        the same in a table
    content, lines
        numbers for `--json`, and lines and tables to show
    """

    verb: str
    arrays: Mapping[str, NDArray[Any]]
    columns: Mapping[str, NDArray[Any]]
    content: dict[str, Any]
    lines: Sequence[str | Part]


def _apply_model(model: TrainedModel, rows: Rows) -> Done:
    content, lines = dict[str, Any](), list[str]()
    if (test := rows.test()) is not None:
        content = {"metrics": summary(test.probs, test.labels)}
        content["rows_below_floor"] = below_floor(test.probs, test.labels)
        lines = [names.line(content["metrics"], binning.check_score("", model.classes))]
        lines.append(names.floored({"in all": content["rows_below_floor"]}))
    columns = {f"logit_{j}": rows.logits[:, j] for j in range(model.classes)}
    done = f"read by the network {model.network}"
    return Done(done, {"logits": rows.logits}, columns, content, lines)


def _apply_calibrator(fitted: calibrators.Calibrator, rows: Rows) -> Done:
    content, lines = dict[str, Any](), list[str]()
    if (test := rows.test()) is not None:
        content = fitted.judge(test)
        about = content["score"], naming.called(fitted.class_names, 1)
        lines = [f"{name}: {names.line(content[name], *about)}" for name in ("before", "after")]
        lines.append(names.floored(content["rows_below_floor"]))
    probs = fitted.calibrated(rows.logits, fitted.input)[:, rows.place]
    columns = {f"prob_{name}": probs[:, j] for j, name in enumerate(rows.called)}
    return Done(f"calibrated by {fitted.kind}", {"probs": probs}, columns, content, lines)


def _apply_sets(fitted: PredictionSets, rows: Rows) -> Done:
    groups = None
    if fitted.by == "group":
        ways = (rows.ids[name].astype(np.str_) for name in ("group", "client") if name in rows.ids)
        groups = next((way for way in ways if set(way.tolist()) & set(fitted.names)), None)
    sets = fitted.of_logits(rows.logits, groups)
    content: dict[str, Any] = {"set_size": float(sets.mean() * fitted.classes)}
    lines: list[str | Part] = [f"mean labels in a set: {content['set_size']:.4g}"]
    if (test := rows.test(groups)) is not None:
        content = fitted.judge(test)
        lines = [part for part in fitted.judged_page(test) if isinstance(part, Table)]
        lines += [f"Warning: {warning}" for warning in content["coverage_warnings"]]
    sets, called = sets[:, rows.place], np.array(rows.called)
    comma = " " if rows.names is None else "|"  # a name may hold spaces
    texts = np.array([comma.join(called[s].tolist()) for s in sets])
    columns = {"size": sets.sum(axis=1), "set": texts}
    verb = f"given sets for {100 * (1 - fitted.alpha):g} % coverage"
    return Done(verb, {"sets": sets}, columns, content, lines)


def _write(out: Path, rows: Rows, done: Done) -> None:
    """Write the array as .npy, with its columns as .npz, or a table: ids, labels, columns."""
    beside = rows.columns
    with atomic.whole_file(out) as f:
        if out.suffix == ".npy":
            (array,) = done.arrays.values()
            np.save(f, array, allow_pickle=False)
        elif out.suffix == ".npz":
            arrays = {**done.arrays, **beside}
            if "logits" in arrays:  # a data file to calibrate on, whose test part stands apart
                arrays["logits"] = arrays["logits"].astype(np.float32)
                parts = {"": ~rows.judged, "test_": rows.judged}
                parts = {"": rows.judged} if rows.judged.all() else parts
                arrays = {
                    f"{key}{name}": array[part]
                    for key, part in parts.items()
                    for name, array in arrays.items()
                }
            np.savez_compressed(f, **arrays)  # type: ignore[arg-type]
        else:
            table = {name: beside[name] for name in datasets.IDS if name in beside}
            if "labels" in beside:
                table["label"] = beside["labels"]
            _write_table(out, f, {**table, **done.columns})


def _write_table(out: Path, file: IO[bytes], table: Mapping[str, NDArray[Any]]) -> None:
    """Columns as .parquet, .csv or .csv.gz."""
    if out.suffix == ".parquet":
        imports.need("pyarrow", "parquet", "writing a .parquet file")
        import pyarrow
        import pyarrow.parquet

        plain = {name: column.tolist() for name, column in table.items()}
        pyarrow.parquet.write_table(pyarrow.table(plain), file)
        return
    packed = gzip.GzipFile("", "wb", fileobj=file, mtime=0) if out.suffix == ".gz" else file
    with io.TextIOWrapper(packed, "utf-8", newline="", write_through=True) as text:
        lines = zip(*(column.tolist() for column in table.values()), strict=True)
        csv.writer(text).writerows([[*table], *lines])


def rows_of_model(model: TrainedModel, data: str) -> Rows:
    """Return a model's logits for the rows of a file that `fedcal train` reads.

    Raises InputError if the rows cannot be read, or are none that the model takes.

    Parameters
    ----------
    data
        path, or the name of shipped features; labels may be missing from a file of features
    """
    path, labelled = atomic.path_of(data), True
    with checks.located(repr(data)):
        is_file = path.suffix.lower() == ".npz" and path.is_file()
        arrays: dict[str, Any] = dict(npz.read_npz(path)) if is_file else {}
        if "features" in arrays:
            labelled = bool({"labels", "y"} & arrays.keys())
            for prefix in ("", "test_"):
                if not labelled and f"{prefix}features" in arrays:
                    arrays[f"{prefix}labels"] = np.zeros(len(arrays[f"{prefix}features"]), np.int64)
            arrays.setdefault("class_names", np.arange(model.classes).astype(np.str_))
            rows = labelled_rows(arrays)
    if "features" not in arrays:
        rows = read_labelled(data)
    parts = (rows,) if rows.test is None else (rows, rows.test)
    with checks.located(repr(data)):
        for one in parts:
            checks.whole("the number of classes", one.classes, 0, model.classes)
        logits = _joined(*(model.predict(one.x) for one in parts))
    labels = _joined(*(one.y for one in parts)) if labelled else None
    judged = np.arange(len(logits)) >= (len(rows.y) if len(parts) > 1 else 0)
    probs, place = numerics.softmax(logits), [*range(model.classes)]
    return Rows(logits, probs, labels, judged, {}, None, place)
