"""Apply a calibrator or prediction sets to all rows of a file; its test part comes last."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal import calibrators, datasets
from fedcal.cli.parameters import Json, Overwrite, Quiet
from fedcal.conformal import PredictionSets, load
from fedcal.core import checks, imports, naming, numerics
from fedcal.core.pages import Table
from fedcal.metrics import names
from fedcal.results.terminal import show
from fedcal.run import folders
from fedcal.storage import artifact, atomic

FORMATS = (".csv", ".parquet", ".npz", ".npy")
"""Suffixes that --out may have; .npy holds no ids and no labels."""

Arrays = dict[str, NDArray[Any]]
Record = dict[str, Any]


def command(
    calibrator: Path,
    data: str,
    out: Path,
    alpha: float | None = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write probabilities or sets, and show metrics where there are labels.

    Options
    -------
    calibrator
        calibrator.npz or sets.npz.
    data
        A shipped name or a file; labels are optional.
    out
        File to write: .csv, .parquet, .npz, .npy.
    alpha
        For sets: another share of rows without their label, from the same release.

    Examples
    --------
    fedcal apply --calibrator run/calibrator.npz --data new.csv --out probabilities.csv
    fedcal apply --calibrator run/sets.npz --data new.csv --out sets.csv
    """
    if not out.name.lower().endswith(FORMATS):
        raise checks.InputError(f"--out {out}: allowed are {', '.join(FORMATS)}")
    if Path(data).exists() and out.exists() and out.samefile(data):
        raise checks.InputError(f"--out {out} is the data file itself")
    folders.claim_file(out, overwrite=overwrite)
    checks.check_kept(f"applying a {artifact.form_of(calibrator)}.npz")
    fitted = fitted_in(calibrator)
    if alpha is not None:
        if not isinstance(fitted, PredictionSets):
            raise checks.InputError("--alpha is for prediction sets, and this is a calibrator")
        fitted = fitted.at(alpha)
    loaded = datasets.load(data, labels_required=False, classes=fitted.class_names)
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
    rows = AppliedRows.of(loaded)
    if isinstance(fitted, PredictionSets):
        made, content, lines = _set_of(fitted, rows)
        verb = f"given sets for {100 * (1 - fitted.alpha):g} % coverage"
    else:
        made, content, lines = _calibrated(fitted, rows)
        verb = f"calibrated by {fitted.kind}"
    _write(out, rows, made)
    parts = (
        "" if rows.evaluated.all() else f" (metrics: the {rows.evaluated.sum()} of its test part)"
    )
    if "subject" in rows.ids:
        parts = f" of {len(np.unique(rows.ids['subject'])):,} subjects{parts}"
    first = f"{len(rows.logits):,} rows{parts} {verb}, written to {out}"
    record = {"rows": len(rows.logits), "out": str(out), **content}
    show([first, *filter(None, lines)], record, json=json, quiet=quiet)


def fitted_in(path: Path) -> calibrators.Calibrator | PredictionSets:
    """Load the result of a run from a file: a calibrator or prediction sets."""
    return load(path) if artifact.form_of(path) == PredictionSets.form else calibrators.load(path)


@dataclass(frozen=True)
class AppliedRows:
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
    evaluated: NDArray[np.bool_]
    ids: Mapping[str, NDArray[Any]]
    names: tuple[str, ...] | None
    place: list[int]

    @classmethod
    def of(cls, rows: datasets.Dataset) -> AppliedRows:
        """Take the rows of a data set as they were read."""
        logits = _joined(rows.logits, rows.test_logits)
        probs = _joined(rows.probs, rows.test_probs)
        labels = _joined(rows.labels, rows.test_labels)
        known = labels if len(labels) == len(probs) else None
        evaluated = np.arange(len(logits)) >= (0 if rows.test_logits is None else len(rows.logits))
        given = rows.given
        if given is not None and given.order is not None:
            back = np.argsort(given.order)
            logits, probs, evaluated = logits[back], probs[back], evaluated[back]
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
        return cls(logits, probs, known, evaluated, ids, rows.class_names, [*place])

    def test(self, groups: NDArray[Any] | None = None) -> artifact.Holdout | None:
        """Return the rows that metrics are of, perhaps in groups; None = they have no labels."""
        if self.labels is None:
            return None
        part, by = self.evaluated, dict[str, Any]()
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


def _calibrated(
    fitted: calibrators.Calibrator, rows: AppliedRows
) -> tuple[Arrays, Record, list[Any]]:
    """Return probabilities, and metrics before and after as plain data and as lines."""
    content, lines = dict[str, Any](), list[str]()
    if (test := rows.test()) is not None:
        content = fitted.judge(test)
        about = content["score"], naming.called(fitted.class_names, 1)
        lines = [f"{name}: {names.line(content[name], *about)}" for name in ("before", "after")]
        lines.append(names.floored(content["rows_below_floor"]))
    probs = fitted.calibrated(rows.logits, fitted.input)[:, rows.place]
    return {"probs": probs}, content, lines


def _set_of(fitted: PredictionSets, rows: AppliedRows) -> tuple[Arrays, Record, list[Any]]:
    """Return prediction sets, and coverage as plain data, and as lines and tables."""
    groups = None
    if fitted.by == "group":
        columns = (
            rows.ids[name].astype(np.str_) for name in ("group", "client") if name in rows.ids
        )
        groups = next(
            (column for column in columns if set(column.tolist()) & set(fitted.names)), None
        )
    sets = fitted.of_logits(rows.logits, groups)
    content: dict[str, Any] = {"set_size": float(sets.mean() * fitted.classes)}
    lines: list[Any] = [f"mean labels in a set: {content['set_size']:.4g}"]
    if (test := rows.test(groups)) is not None:
        content = fitted.judge(test)
        lines = [part for part in fitted.evaluation_page(test) if isinstance(part, Table)]
        lines += [f"Warning: {warning}" for warning in content["coverage_warnings"]]
    return {"sets": sets[:, rows.place]}, content, lines


def _write(out: Path, rows: AppliedRows, made: Arrays) -> None:
    """Write an array as .npy, with the columns beside it as .npz, or a table."""
    beside = rows.columns
    ((name, array),) = made.items()
    with atomic.atomic_file(out) as f:
        if out.suffix == ".npy":
            np.save(f, array, allow_pickle=False)
            return
        if out.suffix == ".npz":
            np.savez_compressed(f, **made, **beside)  # type: ignore[arg-type]
            return
        table = {key: beside[key] for key in datasets.IDS if key in beside}
        if "labels" in beside:
            table["label"] = beside["labels"]
        if name == "probs":
            table |= {f"prob_{c}": array[:, j] for j, c in enumerate(rows.called)}
        else:
            comma, called = " " if rows.names is None else "|", np.array(rows.called)
            table |= {"size": array.sum(axis=1)}  # a name may hold spaces
            table |= {"set": np.array([comma.join(called[s].tolist()) for s in array])}
        plain = {key: column.tolist() for key, column in table.items()}
        if out.suffix == ".parquet":
            parquet = imports.need("pyarrow.parquet", "parquet", "writing a .parquet file")
            pyarrow = imports.need("pyarrow", "parquet", "writing a .parquet file")
            parquet.write_table(pyarrow.table(plain), f)
            return
        with io.TextIOWrapper(f, "utf-8", newline="", write_through=True) as text:
            csv.writer(text).writerows([[*plain], *zip(*plain.values(), strict=True)])
