"""Columns of scores, labels, ids and parts by name, for text, Parquet and frames.

Reader of `.csv`: one labelled row per line, columns by name.

Reader of `.parquet`: columns of record batches as arrays.
"""

import csv
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import InputError, integer, located, near, number_in, one_of
from fedcal.core.imports import need
from fedcal.core.naming import value_of
from fedcal.core.scores import MOST_CLASSES, ids_of, numbers
from fedcal.datasets._dataset import IDS, Given
from fedcal.storage.npz import check_room, intact, room

FIT = ("train", "fit", "calibration", "validation")
"""Names of the fit part in a column `split`."""

TEST = "test"
PARTS = (TEST, *FIT)

_KINDS = ("logit", "prob", "score")
_NUMBERED = re.compile(r"(logit|prob)_(0|[1-9][0-9]{0,8})")
_SCORE = re.compile(rf"(other_)?(?:{_NUMBERED.pattern}|(score))")
_NAMED = re.compile(r"(logit|prob)_(.*[^0-9].*)")  # named by the class instead of its number
_OTHER = "other_"  # before the names of a second model's scores
_ALLOWED = (
    "label, client, subject, group, split, logit_0.. or prob_0.. (two classes: score), "
    "of a second model other_logit_0.., other_prob_0.. or other_score"
)
SINGLE = ("label", *IDS, "split")
"""Columns that hold no scores."""

_SUBJECTS = ("patient", "customer", "person")
_MEANT = {"y_true": "label", "target": "label", "y_prob": "score"}
_INDEX = ("", "Unnamed: 0", "__index_level_0__")  # names of a pandas index in a file


@dataclass(frozen=True)
class Scores:
    """Columns of one model's scores.

    Attributes
    ----------
    kind
        "logits", "probs", or "score", the probability of class 1 of two
    names
        of the columns, class 0 first
    """

    kind: str
    names: list[str]


@dataclass(frozen=True)
class Columns:
    """Columns in use.

    Attributes
    ----------
    models
        "scores" and, if there is a second model, "other" -> their columns
    single
        those of `label`, `client`, `subject`, `group` and `split` that exist
    classes
        names of the classes (of `prob_cat`, `prob_dog`), or None if they have numbers
    """

    models: dict[str, Scores]
    single: list[str]
    classes: tuple[str, ...] | None = None

    @property
    def used(self) -> list[str]:
        """Names of all columns in use."""
        scores = [name for model in self.models.values() for name in model.names]
        return [*scores, *self.single]


def find_columns(names: Sequence[str], labels_required: bool) -> Columns:
    """Find the columns among `names`, in any order.

    Parameters
    ----------
    names
        of all columns
    labels_required
        whether `label` must exist

    Raises
    ------
    InputError
        One line: columns that are unknown, missing, duplicate or incompatible.
    """
    integer("the number of columns", len(names), 0, MOST_CLASSES)
    if len(set(names)) < len(names):
        twice = next(name for k, name in enumerate(names) if name in names[:k])
        raise InputError(f"column {twice!r} appears twice")
    numbers = _numbers_of_classes(names)
    classes = [name.partition("_")[2] for name in numbers]
    for kind in ("logit", "prob"):  # the second model may have another kind of scores
        numbers |= {f"{_OTHER}{kind}_{k}": f"{_OTHER}{kind}_{j}" for j, k in enumerate(classes)}
    by_kind: dict[str, dict[str, dict[int, str]]] = {"": {}, _OTHER: {}}  # model -> kind -> class
    single = [name for name in SINGLE if name in names]
    for name in names:
        match = _SCORE.fullmatch(numbers.get(name, name))
        if match is not None:
            by_kind[match[1] or ""].setdefault(match[2] or match[4], {})[int(match[3] or 0)] = name
        elif name not in single:
            hint = " (pandas: index=False)" if name in _INDEX else ""
            meant = near(_MEANT.get(name, name), (*SINGLE, "score")).partition("allowed")[0]
            raise InputError(f"unknown column {name[:80]!r}; {meant}allowed: {_ALLOWED}{hint}")
    there = ", ".join(map(repr, names))
    there = there if len(there) <= 200 else f"{there[:200]}..."
    lacks_label = labels_required and "label" not in single
    if lacks_label or not by_kind[""]:
        missing = "column 'label'" if lacks_label else "score columns"
        raise InputError(f"no {missing} among {there or 'none'}; allowed: {_ALLOWED}")
    models = {"scores": _scores("", by_kind[""])}
    if by_kind[_OTHER]:
        models["other"] = _scores(_OTHER, by_kind[_OTHER])
    return Columns(models, single, tuple(classes) or None)


def study_columns(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return all column names as in `find_columns`, and the names of the unknown columns.

    A column `patient`, `customer` or `person` is `subject` if `subject` is missing; case is
    ignored.
    """
    own = (*SINGLE, *_SUBJECTS, "score")
    names = [n.lower() if n.lower() in own and n.lower() not in names else n for n in names]
    stands = next((name for name in _SUBJECTS if name in names), None)
    _, subject, _ = IDS
    if stands is not None and subject not in names:
        names = [subject if name == stands else name for name in names]

    def is_known(name: str) -> bool:
        plain = name.removeprefix(_OTHER)
        return name in SINGLE or plain == "score" or plain.startswith(("logit_", "prob_"))

    return list(names), [name for name in names if not is_known(name)]


def _scores(model: str, by_kind: Mapping[str, Mapping[int, str]]) -> Scores:
    """Return the columns of one model, with names after `model`, from kind -> class -> name."""
    kind, *more = [kind for kind in _KINDS if kind in by_kind]
    names = by_kind[kind]
    missing = next((j for j in range(len(names)) if j not in names), None)
    if more or missing is not None:
        both, first = " and ".join([kind, *more]), f"column '{model}{kind}_{missing}'"
        problem = f"{both} columns together" if more else f"{first} is missing"
        raise InputError(f"{problem}; allowed: {_ALLOWED}")
    return Scores(
        kind={"logit": "logits", "prob": "probs"}.get(kind, kind),
        names=[names[j] for j in range(len(names))],
    )


def _numbers_of_classes(names: Sequence[str]) -> dict[str, str]:
    """Return `prob_cat` -> `prob_0` and so on if all score columns have class names, else {}."""
    kinds = {name: match[1] for name in names if (match := _NAMED.fullmatch(name))}
    if len(set(kinds.values())) != 1 or len(kinds) < 2 or any(map(_NUMBERED.fullmatch, names)):
        return {}
    return {name: f"{kind}_{j}" for j, (name, kind) in enumerate(kinds.items())}


def arguments(
    columns: Columns,
    values: Mapping[str, NDArray[Any]],
    labels_required: bool,
    row_name: Callable[[int], str] = "row {}".format,
) -> dict[str, Any]:
    """Return columns as arguments for `from_arrays`.

    Parameters
    ----------
    columns
        columns in use
    values
        all of `columns.models`, (n, c) or (n, 1) for the kind "score", and all of `columns.single`,
        (n,)
    labels_required
        False if rows are to be calibrated and returned: without labels `split` is then ignored, and
        `given` holds the order of the source
    row_name
        function from a row, from 0, to its name in messages

    Raises
    ------
    InputError
        For an unknown part in `split`, or other parts than a fit part and a test part.
    """
    values = {k: ids_of(k, v, row_name) if k in IDS else v for k, v in values.items()}
    labels, split = values.get("label"), values.get("split")
    kinds = {m: "probs" if s.kind == "score" else s.kind for m, s in columns.models.items()}
    kind, scores = kinds["scores"], values["scores"]
    test = np.zeros(len(scores), np.bool_)
    if split is not None:
        unknown = np.flatnonzero(~np.isin(split, PARTS))
        if len(unknown):
            with located(row_name(int(unknown[0]))):
                one_of("split", str(split[unknown[0]])[:80], PARTS)
        if labels is not None:
            parts = [name for name in np.unique(split).tolist() if name in FIT]
            if len(parts) != 1:
                there = f"has {' and '.join(parts)}" if parts else "has no fit part"
                raise InputError(f"split: {there}; needed is one of {', '.join(FIT)}, and {TEST}")
            test = split == TEST
    rows = {kind: scores, "labels": labels, **{name: values.get(name) for name in IDS}}
    if "other" in kinds:
        rows[f"{_OTHER}{kinds['other']}"] = values["other"]
    known: dict[str, Any] = {"class_names": columns.classes}
    if not labels_required:
        ids = {name: values[name] for name in IDS if name in values}
        known["given"] = Given(ids, np.argsort(test, kind="stable") if test.any() else None)
    if labels is None or not test.any():
        return rows | known
    fit, held_out = (
        {name: None if column is None else column[part] for name, column in rows.items()}
        for part in (~test, test)
    )
    own, theirs = fit["client"], held_out["client"]
    if own is None or theirs is None or not np.isin(theirs, own).all():
        theirs = None  # complete clients may be held out: they have no number in the fit part
    return {
        **fit,
        f"test_{kind}": held_out[kind],
        "test_labels": held_out["labels"],
        "test_client": theirs,
        "test_group": held_out["group"],
        **known,
    }


_SWAPPED = str.maketrans(".,", ",.")
MARKS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
"""Characters that separate columns, and what they are called."""

_NO_TEXT = "is not UTF-8 text (save it as CSV UTF-8)"
MAX_LINE = 2**24
"""Characters in a line; a file without line ends must not fill the memory."""

_DECLARED = re.compile(r'"?sep=(.)"?[;,]*\s*')  # a first line for Excel


def _is_text(path: Path, encoding: str) -> bool:
    """Return whether a whole file can be decoded, of which a piece at a time is in memory."""
    try:
        with path.open(encoding=encoding) as file:
            while file.read(MAX_LINE):
                pass
    except UnicodeDecodeError:
        return False
    return True


def csv_rows(
    path: Path, *, windows: bool = False
) -> tuple[str, Iterator[tuple[int, list[str]]], list[str]]:
    """Return the character that separates columns, numbered rows, header first, and notes.

    It is the one that a first line `sep=;` declares, or that cuts the header into most columns.

    Raises InputError for what is not text in UTF-8, with `windows` also cp1252, or is too large.
    """
    encoding, notes = "utf-8-sig", list[str]()
    with intact("", OSError):
        check_room(path.stat().st_size, room(path))
        if windows and not _is_text(path, encoding):
            encoding = "cp1252"
            notes.append("letters are read as Windows has them (cp1252)")

    def lines() -> Iterator[str]:
        with intact(_NO_TEXT, UnicodeDecodeError), path.open(encoding=encoding, newline="") as file:
            while line := file.readline(MAX_LINE):
                if len(line) == MAX_LINE or "\0" in line:
                    what = f"a NUL character, or a line of {MAX_LINE:,} characters"
                    raise InputError(f"has {what}; is this a text file?")
                yield line

    head = next((line for line in lines() if line.strip()), "")
    declared = _DECLARED.fullmatch(head)
    cut = max(MARKS, key=lambda one: len(next(csv.reader([head[: 1 << 16]], delimiter=one), ())))
    mark = declared[1] if declared else cut

    def rows() -> Iterator[tuple[int, list[str]]]:
        source, before = lines(), 0
        if declared:
            before = next(k for k, line in enumerate(source, 1) if line.strip())
        reader = csv.reader(source, delimiter=mark, strict=True, skipinitialspace=True)
        try:
            for row in reader:
                if row:
                    yield before + reader.line_num, row
        except csv.Error as error:
            raise InputError(f"line {before + reader.line_num}: {error}") from None

    return mark, rows(), notes


def read_csv(path: Path, labels_required: bool) -> dict[str, Any]:
    """Return arguments for `from_arrays` from a `.csv` file.

    Columns, in any order: `label`; optional `client`, `subject`, `group` and `split`; and `logit_0
    .. logit_{c-1}`, `prob_0 .. prob_{c-1}`, or for two classes `score`, the probability of class 1;
    for a second model the same names after `other_`. Labels may be names, see `from_arrays`, and
    the scores' columns have those names: `prob_cat`, `prob_dog`. Blank lines are skipped. `client`,
    `subject` and `group` are numeric if all cells of the column are integers. Where semicolons
    separate the names of the columns, decimals have a comma; a point is then an error, for it may
    separate thousands.

    Raises InputError, one line; with the line number (from 1) if a single line is invalid.
    """
    mark, rows, _ = csv_rows(path)
    value = number_in if mark != ";" else lambda cell: number_in(cell.translate(_SWAPPED))
    numbers, lines = array("d"), array("q")
    first, header = next(rows, (1, []))
    names = [name.strip() for name in header]
    with located(f"line {first}"):
        columns = find_columns(names, labels_required)
    models = columns.models
    at = {name: place for place, name in enumerate(names)}
    places = {name: at[name] for scores in models.values() for name in scores.names}
    texts = [(at[name], list[str]()) for name in columns.single]
    for line, row in rows:
        if len(row) != len(names):
            hint = "; a decimal comma?" if len(row) > len(names) and mark == "," else ""
            raise InputError(f"line {line}: {len(row)} cells for {len(names)} columns{hint}")
        lines.append(line)
        for name, place in places.items():
            try:
                numbers.append(value(row[place]))
            except ValueError:
                what = f"no number with a decimal {'comma' if mark == ';' else 'point'}"
                problem = f"column {name!r} has {what}: {row[place][:40]!r}"
                raise InputError(f"line {line}: {problem}") from None
        for place, cells in texts:
            cells.append(row[place].strip())
    table = np.asarray(numbers).reshape(len(lines), len(places))
    scored = len(models["scores"].names)
    values = {"scores": table[:, :scored]}
    if "other" in models:
        values["other"] = table[:, scored:]
    for name, (_, cells) in zip(columns.single, texts, strict=True):
        if name == "label" and "" in cells:
            raise InputError(f"line {lines[cells.index('')]}: column 'label' is empty")
        if name == "label" and mark == ";":
            cells = [_with_point(*cell) for cell in zip(cells, lines, strict=True)]
        check_lengths(name, cells)
        values[name] = numbers_or_names(cells) if name in IDS else np.array(cells, np.str_)
    return arguments(columns, values, labels_required, lambda row: f"line {lines[row]}")


def _with_point(label: str, line: int) -> str:
    """Return a label of a file with decimal commas, with a point if it is a number."""
    if "." in label and value_of(label) is not None:
        what = f"column 'label' has no number with a decimal comma: {label[:40]!r}"
        raise InputError(f"line {line}: {what}")
    point = label.replace(",", ".")
    return label if value_of(point) is None else point


def numbers_or_names(names: list[str]) -> Any:
    """Return numbers if all are written as numbers; "007" is a name, distinct from "7"."""
    try:
        numbers = np.array([int(name) for name in names], np.int64)
    except (ValueError, OverflowError):
        return np.array(names, np.str_)
    return numbers if list(map(str, numbers.tolist())) == names else np.array(names, np.str_)


BATCH = 2**14
"""Rows that are decoded at a time."""

_BATCH_BYTES = 2**27

MAX_NAME = 256
"""Characters in a cell of text."""


def check_lengths(name: str, cells: Iterable[str | None]) -> None:
    """Refuse a cell that is too long: an array of texts takes as much for each of them."""
    longest = max((len(cell or "") for cell in cells), default=0)
    integer(f"the characters of the longest text in column {name!r}", longest, 0, MAX_NAME)


def read_parquet(path: Path, labels_required: bool) -> dict[str, Any]:
    """Return arguments for `from_arrays` from a `.parquet` file.

    Columns are those of a `.csv`. Rows are decoded in batches; dictionaries and decimals are
    converted to their values.

    Raises InputError, one line: pyarrow is missing, or the file is invalid; rows count from 0.
    """
    pa = need("pyarrow", "parquet", "reading .parquet files")
    pq = need("pyarrow.parquet", "parquet", "reading .parquet files")
    errors = (pa.ArrowException, OSError, ValueError, OverflowError)
    with (
        intact("is not an intact .parquet file (truncated or damaged)", *errors),
        path.open("rb") as raw,
        pq.ParquetFile(raw, page_checksum_verification=True) as file,
    ):
        columns = find_columns(file.schema_arrow.names, labels_required)
        # not metadata.row_group(k).column(j): if it is damaged, pyarrow ends the process
        check_room(file.metadata.num_rows * len(columns.used) * 8, most := room(path))
        row = next(file.iter_batches(batch_size=1, columns=columns.used), None)
        size = BATCH if row is None else max(1, min(BATCH, _BATCH_BYTES // max(row.nbytes, 1)))
        parts: dict[str, list[NDArray[Any]]] = {name: [] for name in columns.used}
        rows = taken = 0
        for batch in file.iter_batches(batch_size=size, columns=columns.used):
            batch.validate(full=True)  # offsets of a hostile file may point anywhere
            for name, own in parts.items() if batch.num_rows else ():
                own.append(_values(pa, name, batch.column(name), rows))
                taken += own[-1].size * max(own[-1].itemsize, 8)
                check_room(taken, most)
            rows += batch.num_rows
        integer("the number of rows", rows, 1)
        # popped one by one: all parts and all columns at once would be twice the memory
        arrays = {name: np.concatenate(parts.pop(name)) for name in list(parts)}
        return arguments(columns, with_scores(columns, arrays), labels_required)


def with_scores(columns: Columns, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the values of columns by name, as `arguments` takes them: scores as (n, c)."""
    values = {name: arrays[name] for name in columns.single}
    for model, scores in columns.models.items():
        each = [numbers(name, arrays[name]) for name in scores.names]
        values[model] = np.asarray(np.column_stack(each), np.float64)
    return values


def _values(pa: Any, name: str, array: Any, first: int) -> NDArray[Any]:
    """Return a column of a batch, (m,), from the row `first` on; dictionaries are decoded."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.null_count and name not in IDS:  # `ids_of` counts those without a name
        nulls = np.asarray(array.is_null().to_numpy(zero_copy_only=False))
        raise InputError(f"column {name!r} holds null at row {first + int(np.argmax(nulls))}")
    values = np.asarray(array.to_numpy(zero_copy_only=False))
    if values.dtype.kind != "O" or not all(isinstance(value, str | None) for value in values):
        return values
    check_lengths(name, values)
    return values.astype(np.str_)
