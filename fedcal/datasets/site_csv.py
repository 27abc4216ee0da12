"""CSV files as sites have them: other names, other separators, entries that are missing.

What was recognised or left out is declared in sentences with exact numbers, and so are lines that
cannot be used. Both are for the holder of the rows only; they must never leave a site.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from fedcal.core.checks import InputError, number_in, one_of
from fedcal.core.naming import listed, plain_name, quoted, value_of
from fedcal.core.scores import MISSING
from fedcal.datasets import _tables as tables
from fedcal.datasets._arrays import from_columns
from fedcal.datasets._dataset import Dataset

_MISSING = {text.casefold() for text in MISSING} | {"."}  # the point is that of SAS and Stata
_FIRST = 3
NO_OUTCOME, NO_SCORE = "without an outcome", "without a score"


@dataclass(frozen=True)
class Reading:
    """Options for reading a site's file.

    `columns` are names in the file -> names of a study's columns, `labels` entries -> classes.
    With `drop_missing` lines without an outcome or a score are left out.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    drop_missing: bool = False

    @classmethod
    def of(cls, columns: str | None, labels: str | None, drop_missing: bool) -> Self:
        """Return what `--map`, `--labels` and `--drop-missing` say, the first two by comma."""
        return cls(_pairs("--map", columns), _pairs("--labels", labels), drop_missing)

    def renamed(self, names: Sequence[str]) -> list[str]:
        """Return the columns of a file by the study's names; capitals do not matter."""
        places = {name.casefold(): k for k, name in enumerate(names)}
        new = list(names)
        for old, name in self.columns.items():
            new[places[one_of("column of --map", old.casefold(), places)]] = name
        return new

    def classes_of(self, classes: Sequence[str], *, numbered: bool) -> dict[Any, str]:
        """Return entry -> class; with `numbered` numbers mean classes in their order, too."""
        by_number = numbered and not self.labels and None in map(value_of, classes)
        known: dict[Any, str] = dict(enumerate(classes)) if by_number else {}
        known |= {_key(name): name for name in classes}
        return known | {
            _key(entry): one_of("class of --labels", name, classes)
            for entry, name in self.labels.items()
        }


AS_IT_IS = Reading()


def _pairs(option: str, text: str | None) -> dict[str, str]:
    """Return an option's list OLD=NEW,...; InputError for anything else."""
    pairs: dict[str, str] = {}
    for part in text.split(",") if text else ():
        old, _, new = (" ".join(side.split()) for side in part.rpartition("="))
        if not (old and new) or old in pairs:
            raise InputError(f"{option}: {part!r} is not OLD=NEW, or OLD occurs twice")
        pairs[old] = new
    return pairs


def _key(entry: str) -> Any:
    """Return the number that an entry is (1, 1.0 and true are one), or its text."""
    number = value_of(entry)
    return plain_name("label", entry) if number is None else number


def _is_missing(entry: str) -> bool:
    return entry.casefold() in _MISSING


def _number(entry: str, comma: bool) -> float:
    """Return the number that an entry is, with a decimal comma or point; nan for anything else."""
    if comma and "." in entry:  # it may separate thousands
        return math.nan
    try:
        return float(number_in(entry.replace(",", ".") if comma else entry))
    except ValueError:
        return math.nan


def read_site_csv(
    path: Path, classes: Sequence[str] | None, reading: Reading, most: float = 1.0
) -> tuple[Dataset, list[str]]:
    """Return the rows of a `.csv`, and what was done with its lines, in sentences.

    Marks that separate columns and decimals are recognised. Spaces around entries, empty lines, a
    line `sep=;` and further columns are passed over; `patient`, `customer` or `person` is
    `subject`. `Dataset.given` has the subjects' own names.

    Parameters
    ----------
    classes
        names in order; None = as the columns say
    most
        largest share of the lines that may be left out

    Raises
    ------
    InputError
        The file cannot be read, or lacks a column; or, in one line, all lines that cannot be used
        by kind, with the numbers of the first three of each; or too many would be left out.
    """
    mark, rows, notes = tables.csv_rows(path, windows=True)
    plain = ((line, [" ".join(entry.split()) for entry in row]) for line, row in rows)
    (_, header), *lines = [(line, row) for line, row in plain if any(row)] or [(0, list[str]())]
    if mark != ",":
        notes.append(f"columns are separated by {tables.MARKS.get(mark, repr(mark))}")
    names, strange = tables.study_columns(reading.renamed(header))
    strange += [name for name in names if name.startswith("other_")]
    for name in {*reading.columns.values()}.intersection(strange):
        raise InputError(f"--map: {name!r} is no column of a study, such as label or score")
    there = [name for name in names if name not in strange]
    if "label" not in there or not {*there}.difference(tables.SINGLE):
        what = "score columns" if "label" in there else "column 'label'"
        raise InputError(f"no {what} among {quoted(header)}; --map OLD=NEW gives one its name")
    used = tables.find_columns(there, True)
    scores, of_label = used.models["scores"], names.index("label")
    places = [names.index(name) for name in scores.names]
    ids = {name: names.index(name) for name in used.single if name != "label"}
    known = reading.classes_of(classes or (), numbered=used.classes is None)
    comma = any("," in row[k] for _, row in lines for k in places if k < len(row))
    bad: dict[str, list[tuple[int, str]]] = defaultdict(list)
    kept, labels, values = list[tuple[int, list[str]]](), list[str](), list[list[float]]()
    for line, row in lines:
        if len(row) != len(header):
            bad[f"with other than {len(header)} entries"].append((line, f"{len(row)}"))
            continue
        entry, score = row[of_label], [row[k] for k in places]
        label = known.get(_key(entry)) if classes else entry * (not _is_missing(entry)) or None
        shown, lacking = ", ".join(score), [name for name, k in ids.items() if _is_missing(row[k])]
        if label is None and _is_missing(entry):
            bad[NO_OUTCOME].append((line, entry))
        elif label is None:
            bad[f"with a label that is none of {quoted(classes or ())}"].append((line, entry))
        elif any(map(_is_missing, score)):
            bad[NO_SCORE].append((line, shown))
        elif lacking:
            column = ids[lacking[0]]
            bad[f"without a {header[column]}"].append((line, row[column]))
        elif not all(map(math.isfinite, numbers := [_number(one, comma) for one in score])):
            bad["with a score that is no number" + " with a comma" * comma].append((line, shown))
        elif scores.kind != "logits" and not 0 <= min(numbers) <= max(numbers) <= 1:
            bad["with a score outside 0 to 1"].append((line, shown))
        else:
            kept.append((line, row))
            labels.append(label)
            values.append(numbers)
    out = [len(bad.pop(what, ())) for what in (NO_OUTCOME, NO_SCORE) if reading.drop_missing]
    if bad:
        raise InputError(_problems(bad, len(lines)))
    if reading.drop_missing:
        share = sum(out) / max(len(lines), 1)
        message = f"{out[0]:,} {NO_OUTCOME}, {out[1]:,} more {NO_SCORE}: "
        message += f"{100 * share:.1f} % of {len(lines):,} lines"
        if share > most:
            raise InputError(f"{message}; at most {100 * most:g} % may be left out")
        notes.append(f"left out: {message}")
    notes += ["decimals have commas"] * comma
    notes += [f"column {old} is {new}" for old, new in reading.columns.items()]
    notes += [f"label {old} is {new}" for old, new in reading.labels.items()]
    if ignored := [name[:40] for name in strange if name]:
        notes.append(f"columns that are ignored: {listed(ignored)[:200]}")
    tables.check_lengths("label", labels)
    columns: dict[str, Any] = {"label": np.array(labels, np.str_)}
    for name, k in ids.items():
        tables.check_lengths(name, cells := [row[k] for _, row in kept])
        columns[name] = tables.numbers_or_names(cells)
    columns["scores"] = np.array(values, np.float64).reshape(len(kept), len(places))
    found = tables.arguments(used, columns, False, lambda row: f"line {kept[row][0]}")
    return from_columns(found, name=path.name, labels_required=False, classes=classes), notes


def _problems(bad: Mapping[str, Sequence[tuple[int, str]]], lines: int) -> str:
    """Return one line about all lines that cannot be used, by kind."""
    kinds = []
    for kind, found in bad.items():
        first = [f"line {line}: {entry[:40]!r}" for line, entry in found]
        kinds.append(f"{len(found):,} {kind} ({listed(first, most=_FIRST)})")
    many = sum(map(len, bad.values()))
    message = f"{many:,} of {lines:,} lines cannot be used: {'; '.join(kinds)}"
    if {NO_OUTCOME, NO_SCORE}.isdisjoint(bad):
        return message
    return f"{message}; --drop-missing leaves out those {NO_OUTCOME} or {NO_SCORE}"
