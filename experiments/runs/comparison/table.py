"""One table of a comparison: for the terminal, as Markdown and as CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from fedcal.experiments.report.families import columns_of, shown
from fedcal.experiments.report.tables import TextTable, csv_text, markdown
from fedcal.experiments.runs.comparison.summary import Line

_FACTS = (
    "alpha",
    *("data", "clients", "partition", "sampling_rate", "rounds", "unit", "trust", "mechanism"),
)
_FOLLOWING = ("trust", "mechanism", "rounds")
"""Facts that follow from method and budget unless they are given."""
_TELLING = (
    *("data", "label", "clients", "partition", "sampling_rate", "unit", "epsilon", "delta"),
)
_COLUMNS: dict[str, str] = {"sampling_rate": "sampling rate"}
_KEPT = (
    *("data", "method", "label", "settings", "alpha", "clients", "partition", "rounds"),
    *("sampling_rate", "epsilon", "delta", "unit", "trust", "mechanism", "noise_std"),
    *("bytes_up", "bytes_down"),
)
_WORDS = ("method", "data", "partition", "unit", "trust", "mechanism")
_PARTS = (("before", "before", "mean"), ("mean", "after", "mean"), ("std", "after", "std"))


class Cells:
    """The cells of a table as text: which columns there are, and what stands in them.

    A fact that is the same in all lines (the data, the partition, ...) goes into the title
    instead of a column; trust, mechanism and rounds, which follow from method and budget unless
    they are given, are shown only where they tell two lines apart.
    """

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = lines
        self._metrics = columns_of(lines)
        facts = {k: [v for line in lines if (v := line.get(k)) is not None] for k in _FACTS}
        distinct = {k: list(dict.fromkeys(v)) for k, v in facts.items()}
        varied = [k for k, v in distinct.items() if len(v) > 1]
        telling = self._telling(varied)
        self._varied = [k for k in varied if k not in _FOLLOWING or k in telling]
        self._fixed = {k: v[0] for k, v in distinct.items() if len(v) == 1}

    def _telling(self, varied: Sequence[str]) -> list[str]:
        """Return those of `_FOLLOWING` that distinguish lines which all before them do not."""
        keys, telling = list(_TELLING), list[str]()
        for fact in _FOLLOWING:
            # a delta of 0 is a consequence of the mechanism, and no name for it
            known = [k for k in keys if (fact, k) != ("mechanism", "delta")]
            without, with_fact = (
                len({tuple(line.get(k) for k in some) for line in self._lines})
                for some in (known, [*known, fact])
            )
            if fact in varied and with_fact > without:
                keys.append(fact)
                telling.append(fact)
        return telling

    @property
    def title(self) -> str:
        """Facts that all lines have in common."""
        facts = []
        if "data" in self._fixed:
            facts.append(_short(self._fixed["data"]))
        if "clients" in self._fixed:
            facts.append(f"{self._fixed['clients']:,} clients")
        if "partition" in self._fixed:
            facts.append(self._fixed["partition"])
        if "alpha" in self._fixed:
            facts.append(f"alpha {self._fixed['alpha']:g}")
        if self._fixed.get("sampling_rate", 1.0) != 1.0:
            facts.append(f"sampling rate {self._fixed['sampling_rate']:g}")
        runs = max(len(line["seeds"]) + len(line["failures"]) for line in self._lines)
        facts.append(f"mean ± std over {runs} seeds" if runs > 1 else "one seed")
        return ", ".join(facts)

    @property
    def headings(self) -> list[str]:
        """Headings of all columns."""
        return [
            "method",
            *(_COLUMNS.get(k, k) for k in self._varied),
            "epsilon",
            *self._metrics.values(),
            *("delta", "noise std", "bytes up / down", "seconds"),
        ]

    def texts(self, line: Line) -> list[str]:
        """Return a line as text for people."""
        failed, runs = len(line["failures"]), len(line["seeds"]) + len(line["failures"])
        label = line["label"] + (f" [{failed} of {runs} failed]" if failed else "")
        epsilon = "" if line["baseline"] else "inf"
        if line["epsilon"] is not None:
            epsilon = f"{line['epsilon']:g}"
        up, down, seconds = line["bytes_up"], line["bytes_down"], line["seconds"]["mean"]
        return [
            label,
            *(_fact(k, line.get(k)) for k in self._varied),
            epsilon,
            *(
                _spread(metric, line["after"].get(metric), len(line["seeds"]))
                for metric in self._metrics
            ),
            "" if line["delta"] is None else f"{line['delta']:g}",
            _noise(line),
            "" if up is None else f"{up:,} / {down:,}",
            "" if seconds is None else f"{seconds:.3f}",
        ]

    def section(self, line: Line) -> tuple[Any, ...]:
        """Differs where a new part of the table begins."""
        varied = [line.get(k) for k in self._varied if k not in ("rounds", "mechanism")]
        return line["baseline"], line["epsilon"], *varied


def as_table(lines: Sequence[Line]) -> TextTable:
    """Return the table for the terminal (`show.tables.print_table`) and for Markdown."""
    cells = Cells(lines)
    words = {k for k, heading in enumerate(cells.headings) if heading in _WORDS}
    kinds = [cells.section(line) for line in lines]
    begin = {k: "" for k, (one, following) in enumerate(pairwise(kinds), 1) if one != following}
    rows = [cells.texts(line) for line in lines]
    return TextTable(tuple(cells.headings), rows, cells.title, words, begin)


def as_markdown(lines: Sequence[Line]) -> str:
    """Return the table for a README, without the title."""
    return markdown(replace(as_table(lines), title="", left=(0,)))


def as_csv(lines: Sequence[Line]) -> str:
    """Return the table for a spreadsheet: all digits, and fractions instead of percentages."""
    return csv_text(as_rows(lines))


def as_rows(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Return the CSV's content, by column."""
    metrics = list(dict.fromkeys(name for line in lines for name in line["after"]))
    return [
        {key: line[key] for key in _KEPT if key in line}
        | {"runs": len(line["seeds"]), "failed": len(line["failures"])}
        | {
            f"{metric}_{name}": line[part].get(metric, {}).get(of)
            for metric in metrics
            for name, part, of in _PARTS
        }
        | {"seconds_mean": line["seconds"]["mean"], "seconds_std": line["seconds"]["std"]}
        for line in lines
    ]


def _fact(key: str, value: Any) -> str:
    if value is None:
        return ""
    if key == "data":
        return _short(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _short(data: str) -> str:
    return Path(data).name


def _spread(metric: str, over: Mapping[str, Any] | None, runs: int) -> str:
    if over is None or over["mean"] is None:
        return ""
    mean, std = shown(metric, over["mean"]), shown(metric, over["std"])
    some = len(over.get("values", range(runs)))  # what ships of a comparison has means alone
    note = "" if some == runs else f" [{some} of {runs}]"  # noise drowned the others
    return (mean if float(std) == 0 else f"{mean} ± {std}") + note


def _noise(line: Line) -> str:
    """Return the std of the released sum, one number for each kind of block."""
    if line["epsilon"] is None or not line["seeds"]:
        return ""
    std = line["noise_std"]
    if std is None:
        return "(draw)"
    blocks = sorted({std} if isinstance(std, float) else set(std))
    return " / ".join(f"{s:,.0f}" if s >= 1000 else f"{s:.3g}" for s in blocks)
