"""Apply a calibrator or prediction sets to a file; its test part comes last.

Columns stand in the order of classes that the calibrator or the sets have.
"""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal import calibrators, datasets
from fedcal.cli.parameters import Json, Overwrite, Quiet
from fedcal.conformal import PredictionSets, load
from fedcal.core import checks, imports, naming, numerics
from fedcal.core.pages import Table
from fedcal.datasets._dataset import Given
from fedcal.metrics import names
from fedcal.results.terminal import show
from fedcal.run import folders
from fedcal.storage import artifact, atomic

FORMATS = (".csv", ".parquet", ".npz", ".npy")
"""Suffixes that --out may have; .npy holds no ids and no labels."""

Arrays = dict[str, NDArray[Any]]


def command(
    calibrator: Path,
    data: str,
    out: Path,
    alpha: float | None = None,
    class_names: str | None = None,
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
    class_names
        Names of the classes by comma, in order, for a calibrator or sets that have none.

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
    if class_names is not None:
        called = naming.names_in(class_names)
        checks.same(f"names of the classes of {calibrator}", called, fitted.class_names or called)
        fitted.of_classes(called)
    loaded = datasets.load(data, labels_required=False, classes=fitted.class_names)
    rows = AppliedRows.of(loaded)
    if loaded.input != fitted.input:  # logits make probabilities, which do not tell the logits
        checks.same(f"kind of scores in {data} for {calibrator}", loaded.input, "logits")
        rows = replace(rows, logits=numerics.logits_of(fitted.input, rows.probs))
    checks.same(f"number of classes in {data}", loaded.classes, fitted.classes)
    if fitted.class_names is None and loaded.class_names is not None:
        warnings.warn(
            f"{calibrator} does not say what its classes are called: the columns of {data} are "
            f"taken as they stand ({', '.join(loaded.class_names)[:200]})",
            stacklevel=2,
        )
    if isinstance(fitted, PredictionSets):
        made, content, lines = _set_of(fitted, rows)
        verb = f"given sets for {100 * (1 - fitted.alpha):g} % coverage"
    else:
        made, content, lines = _calibrated(fitted, rows)
        verb = f"calibrated by {fitted.kind}"
    _write(out, rows, made, loaded.class_names)
    tested = rows.evaluated
    parts = "" if tested.all() else f" (metrics: the {tested.sum()} of its test part)"
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
    evaluated
        the rows that metrics are of: the test part where there is one, because the others may be
        what was fitted on
    ids
        those of `client`, `subject` and `group` that the rows have, (n,) each
    """

    logits: numerics.Floats
    probs: numerics.Floats
    labels: numerics.Integers | None
    evaluated: NDArray[np.bool_]
    ids: Mapping[str, NDArray[Any]]

    @classmethod
    def of(cls, rows: datasets.Dataset) -> AppliedRows:
        """Take the rows of a data set as they were read; a shipped set has no ids."""
        logits = _joined(rows.logits, rows.test_logits)
        probs = _joined(rows.probs, rows.test_probs)
        labels = _joined(rows.labels, rows.test_labels)
        evaluated = np.arange(len(logits)) >= (0 if rows.test_logits is None else len(rows.logits))
        given = rows.given or Given({})
        back: Any = slice(None) if given.order is None else np.argsort(given.order)
        known = labels[back] if len(labels) == len(probs) else None
        return cls(logits[back], probs[back], known, evaluated[back], given.ids)

    def test(self, groups: NDArray[Any] | None = None) -> artifact.Holdout | None:
        """Return the rows that metrics are of, perhaps in groups; None = they have no labels."""
        if self.labels is None:
            return None
        part, by = self.evaluated, dict[str, Any]()
        if groups is not None:
            called, by["group"] = np.unique(groups[part], return_inverse=True)
            by["group_names"] = tuple(called.tolist())
        return artifact.Holdout(self.logits[part], self.probs[part], self.labels[part], **by)


def _joined(*parts: NDArray[Any] | None) -> NDArray[Any]:
    return np.concatenate([part for part in parts if part is not None] or [np.zeros(0, np.int64)])


def _calibrated(
    fitted: calibrators.Calibrator, rows: AppliedRows
) -> tuple[Arrays, dict[str, Any], list[Any]]:
    """Return probabilities, and metrics before and after as plain data and as lines."""
    content, lines = dict[str, Any](), list[str]()
    if (test := rows.test()) is not None:
        content = fitted.judge(test)
        about = content["score"], naming.called(fitted.class_names, 1)
        lines = [f"{name}: {names.line(content[name], *about)}" for name in ("before", "after")]
        lines.append(names.floored(content["rows_below_floor"]))
    return {"probs": fitted.calibrated(rows.logits, fitted.input)}, content, lines


def _set_of(fitted: PredictionSets, rows: AppliedRows) -> tuple[Arrays, dict[str, Any], list[Any]]:
    """Return prediction sets, and coverage as plain data, and as lines and tables."""
    by = ("client", "group") if fitted.by == "group" else ()
    groups: NDArray[Any] | None = None
    for column in (rows.ids[name].astype(np.str_) for name in by if name in rows.ids):
        if set(column.tolist()) & set(fitted.names):
            groups = column  # of a group rather than of a client
    sets = fitted.of_logits(rows.logits, groups)
    content: dict[str, Any] = {"set_size": float(sets.mean() * fitted.classes)}
    lines: list[Any] = [f"mean labels in a set: {content['set_size']:.4g}"]
    if (test := rows.test(groups)) is not None:
        content = fitted.judge(test)
        lines = [part for part in fitted.evaluation_page(test) if isinstance(part, Table)]
        lines += [f"Warning: {warning}" for warning in content["coverage_warnings"]]
    return {"sets": sets}, content, lines


def _write(out: Path, rows: AppliedRows, made: Arrays, names: tuple[str, ...] | None) -> None:
    """Write an array as .npy; with ids, labels and names of classes as .npz, or as a table."""
    beside, ((name, array),) = dict(rows.ids), made.items()
    called = np.array(naming.class_names(names, array.shape[1]))
    if rows.labels is not None:
        beside["labels"] = rows.labels if names is None else called[rows.labels]
    if names is not None:
        beside["class_names"] = called
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
            table |= {f"prob_{c}": array[:, j] for j, c in enumerate(called)}
        else:
            comma = " " if names is None else "|"  # a name may hold spaces
            table |= {"size": array.sum(axis=1)}
            table |= {"set": np.array([comma.join(called[s].tolist()) for s in array])}
        plain = {key: column.tolist() for key, column in table.items()}
        if out.suffix == ".parquet":
            parquet = imports.need("pyarrow.parquet", "parquet", "writing a .parquet file")
            pyarrow = imports.need("pyarrow", "parquet", "writing a .parquet file")
            parquet.write_table(pyarrow.table(plain), f)
            return
        with io.TextIOWrapper(f, "utf-8", newline="", write_through=True) as text:
            csv.writer(text).writerows([[*plain], *zip(*plain.values(), strict=True)])
