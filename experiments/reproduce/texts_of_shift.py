"""What the pages on Luo et al., domain shift and trust models, and README, say of results.

As in `texts`: nothing here is a result that was written down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from itertools import product
from typing import Any

from fedcal import datasets
from fedcal.experiments.luo.methods import COLUMNS, PAPER
from fedcal.experiments.luo.noise import NOISES
from fedcal.experiments.reproduce import luo
from fedcal.experiments.reproduce.comparisons import command
from fedcal.experiments.reproduce.expected import read, shipped
from fedcal.experiments.reproduce.texts import table
from fedcal.metrics import summary
from fedcal.numerics import softmax
from fedcal.trust import NOISY, Central, Local
from fedcal.units import Example, User

Row = Mapping[str, Any]

SEVERITIES = {5: "luo-table1", 1: "luo-table7"}
PRINTED = {5: "table1", 1: "table7"}
SHIFTED = "mnist-shift"


# -- domain shift --------------------------------------------------------------------------------


@cache
def _clean_or_shifted() -> dict[tuple[str, int], tuple[float, float]]:
    """Variant -> accuracy and ECE of all its rows, from the logits that ship."""
    found = {}
    for name, severity in datasets.shifted(SHIFTED):
        data = datasets.load(f"{SHIFTED}:{name}:{severity}")
        scores = summary(softmax(data.logits), data.labels)
        found[name, severity] = (scores["accuracy"], scores["ece"])
    return found


def mnist_shift() -> str:
    """Accuracy and ECE of each variant of the shipped set."""
    found = _clean_or_shifted()

    def cells(variant: tuple[str, int]) -> list[str]:
        return [f"{100 * v:.2f}" for v in found[variant]] if variant in found else ["", ""]

    names = [name for name, severity in found if severity == 1]
    lines = [[n.replace("_", " "), *cells((n, 1)), *cells((n, 5))] for n in names]
    lines.append(["none", *cells(("none", 0)), "", ""])
    head = ["", "accuracy, severity 1", "ECE", "accuracy, severity 5", "ECE"]
    return table(head, lines)


# -- Luo et al. ----------------------------------------------------------------------------------


@cache
def _rows(severity: int) -> list[dict[str, Any]]:
    return shipped(SEVERITIES[severity]).rows


def _methods(severity: int, noise: str) -> dict[str, Row]:
    rows = [r for r in _rows(severity) if r["what"] == "method" and r["noise"] == noise]
    return {r["method"]: r for r in rows}


def luo_order(severity: int) -> str:
    """The paper's table and ours beside it."""
    ours, beside = _methods(severity, Local.name), luo.printed(PRINTED[severity])
    head = ["method", f"ours, severity {severity}", *beside]
    lines = [
        [
            luo.TITLES[m],
            f"{ours[m]['median']:.4f} / {ours[m]['mean']:.4f}",
            *(f"{lines[m][0]:.4f} / {lines[m][1]:.4f}" for lines in beside.values()),
        ]
        for m in PAPER
    ]
    return table(head, lines)


def luo_read(severity: int) -> str:
    """How far others are behind Acc-T in the median, and which private method is the last one."""
    ours = {m: r["median"] for m, r in _methods(severity, Local.name).items()}
    beside = luo.printed(PRINTED[severity])
    medians = {f"ours, severity {severity}": ours}
    medians |= {name: {m: v for m, (v, _) in lines.items()} for name, lines in beside.items()}

    def line(name: str, found: Mapping[str, float]) -> list[str]:
        others = [m for m in luo.PAPER_PRIVATE if m != "acc-t"]
        first = min(others, key=found.__getitem__)
        last = max(luo.PAPER_PRIVATE, key=found.__getitem__)
        behind = [f"{found[m] / found['acc-t']:.2f}" for m in (first, "one-source", "none")]
        than = "worse" if found[last] > found["none"] else "better"
        return [name, luo.TITLES[first], *behind, f"{luo.TITLES[last]}, {than} than none"]

    head = ["median / Acc-T's", "next private method", "its", "one source's"]
    head += ["no recalibration's", "last private method"]
    return table(head, [line(name, found) for name, found in medians.items()])


def luo_noise() -> str:
    """Medians of all methods under both kinds of noise."""
    columns = list(product(SEVERITIES, NOISES))
    found = {column: _methods(*column) for column in columns}
    names = [m for m in luo.TITLES if any(c.method == m for c in COLUMNS if c.noise)]
    head = ["method", *(f"{noise}, severity {severity}" for severity, noise in columns)]
    lines = [
        [
            luo.TITLES[m],
            *(f"{rows[m]['median']:.4f}" if m in rows else "" for rows in found.values()),
        ]
        for m in names
    ]
    return table(head, lines)


_RATIOS = {
    "histogram": "histogram",
    "histogram-wrong": "(correct, wrong)",
    "ece-t": "ECE-T",
    "nll-t": "NLL-T",
    "acc-t": "Acc-T",
    "acc-t-bisection": "bisection",
    "acc-t-posterior-3": "posterior, 3",
}
_SHOWN = {"sources": (10, 50, 100, 150, 200, 250), "epsilon": (0.2, 0.6, 1.0, 2.0)}
"""Sweep -> its settings that the table shows."""


def luo_aggregation() -> str:
    """ECE under local noise over that under central noise, of some of the settings."""
    rows = [
        r
        for r in _rows(5)
        if r["what"] == "aggregation" and r[r["sweep"]] in _SHOWN.get(r["sweep"], ())
    ]
    head = ["sources x samples, epsilon", *_RATIOS.values()]
    lines = [
        [
            f"{r['sources']} x {r['samples']}, {r['epsilon']:g}",
            *(f"{r[m]:.2f}" for m in _RATIOS),
        ]
        for r in rows
    ]
    middle = [r for r in rows if r["sweep"] == "sources" and r["sources"] >= luo.SMALLEST]
    told = ", ".join(
        f"{title} {min(r[m] for r in middle):.1f} to {max(r[m] for r in middle):.1f}"
        for m, title in _RATIOS.items()
    )
    said = (
        f"With {luo.SMALLEST} to {luo.MOST} sources the ECE becomes so many times smaller: {told}."
    )
    return f"{table(head, lines)}\n\n{said}"


def luo_searches(severity: int) -> str:
    """The searches against each other."""
    found = {(r["method"], r["noise"]): r for r in _rows(severity) if r["what"] == "search"}
    head = ["search"]
    for noise in NOISES:
        head += [f"{noise}, median", "best in"]
    lines = []
    for method, title in luo.SEARCHES.items():
        cells = [title]
        for noise in NOISES:
            r = found.get((method, noise))
            cells += ["", ""] if r is None else [f"{r['median']:.4f}", f"{100 * r['best']:.0f} %"]
        lines.append(cells)
    best = ", ".join(
        f"{luo.SEARCHES[min(mine, key=lambda r: float(r['median']))['method']]} under {noise} noise"
        for noise in NOISES
        if (mine := [r for (_, n), r in found.items() if n == noise])
    )
    return f"{table(head, lines)}\n\nThe lowest median of severity {severity}: {best}."


def luo_short() -> str:
    """What README says of it."""
    local, central = _methods(5, Local.name), _methods(5, Central.name)
    next_best = min(
        (m for m in luo.PAPER_PRIVATE if m != "acc-t"), key=lambda m: float(local[m]["median"])
    )
    calm = _methods(1, Local.name)
    worse = [m for m in luo.PAPER_PRIVATE if calm[m]["median"] > calm["none"]["median"]]

    def percent(row: Row) -> str:
        return f"{100 * row['median']:.1f} %"

    return (
        "`fedcal reproduce luo-table1`, `luo-table7` and `luo-figures` run Luo et al.'s study of "
        "recalibration under domain shift (500 random divisions of each setting) on shifted MNIST. "
        f"Median ECE at severity 5: Acc-T {percent(local['acc-t'])}, the next private method "
        f"({luo.TITLES[next_best]}) {percent(local[next_best])}, no recalibration "
        f"{percent(local['none'])}. At severity 1, where this network needs no recalibration, "
        f"{len(worse)} of {len(luo.PAPER_PRIVATE)} private methods under local noise do harm. One "
        "noise on the secure sum instead of each source's own brings Acc-T to "
        f"{percent(central['acc-t'])}, [and more, with what does not hold](luo.md)."
    )


# -- trust models --------------------------------------------------------------------------------

TRUST = "trust-models"
_COLUMNS = tuple(product((User.name, Example.name), NOISY))


def trust_models() -> str:
    """What trust models and units cost, and which combinations are worth little."""
    found = read(TRUST)
    by_key: dict[str, dict[tuple[str, str], Row]] = {}
    for line in found["results"]:
        by_key.setdefault(line["method"], {})[line["unit"], line["trust"]] = line["after"]["ece"]
    (before,), (pooled,) = (by_key.pop(m).values() for m in ("none", "pooled-temperature"))
    head = ["ECE, %", *(f"{unit}, {trust}" for unit, trust in _COLUMNS)]
    lines = [[f"`{m}`", *(_spread(cells[c]) for c in _COLUMNS)] for m, cells in by_key.items()]
    weak = {
        column: [
            m for m, c in by_key.items() if c[column]["mean"] + c[column]["std"] >= before["mean"]
        ]
        for column in _COLUMNS
    }
    told = [
        f"  * unit `{unit}`, `{trust}`: {', '.join(f'`{m}`' for m in names)}"
        for (unit, trust), names in weak.items()
        if names
    ]
    flat = {m: [c[column]["mean"] for column in _COLUMNS] for m, c in by_key.items()}
    steady = ", ".join(
        f"`{m}` {100 * min(v):.1f} to {100 * max(v):.1f}" for m, v in flat.items() if m in _STEADY
    )
    return (
        f"Uncalibrated: {100 * before['mean']:.2f}; all rows in one place, without privacy: "
        f"{100 * pooled['mean']:.2f}. Commit {found['commit']} made it, by one command:\n\n"
        f"<!-- not run: 211 runs -->\n```console\n$ {command(TRUST)}\n```\n\n"
        f"{table(head, lines)}\n\n"
        "* No better than no calibrator, or by less than a standard deviation:\n"
        + "\n".join(told)
        + f"\n* ECE from the best column to the worst: {steady} %."
    )


_STEADY = ("nllt", "ecet")
"""Searches that noise drowns: what they give lies in [0.5, 3] whatever the noise."""


def _spread(ece: Row) -> str:
    return f"{100 * ece['mean']:.2f} ± {100 * ece['std']:.2f}"


BLOCKS: Mapping[str, Callable[[], str]] = {
    "mnist-shift": mnist_shift,
    "luo-noise": luo_noise,
    "luo-aggregation": luo_aggregation,
    "luo-short": luo_short,
    **{f"luo-order-{s}": partial(luo_order, s) for s in SEVERITIES},
    **{f"luo-read-{s}": partial(luo_read, s) for s in SEVERITIES},
    **{f"luo-searches-{s}": partial(luo_searches, s) for s in SEVERITIES},
    "trust-costs": trust_models,
}
"""By the name that a page gives."""
