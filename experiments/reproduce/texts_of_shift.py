"""What the pages on Luo et al., domain shift and trust models, and README, say of results.

As in `texts`: nothing here is a result that was written down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from typing import Any

from fedcal import datasets
from fedcal.experiments.luo.methods import COLUMNS, NOISES, PAPER
from fedcal.experiments.reproduce import luo
from fedcal.experiments.reproduce.comparisons import command
from fedcal.experiments.reproduce.expected import read
from fedcal.experiments.reproduce.spec import Record, Rows
from fedcal.experiments.reproduce.texts import (
    comparison,
    lines_where,
    mean,
    one,
    percent,
    results,
    table,
)
from fedcal.metrics import summary
from fedcal.numerics import softmax
from fedcal.trust import NOISY, Local
from fedcal.units import Example, User

SEVERITIES = {5: "luo-table1", 1: "luo-table7"}
PRINTED = {5: "table1", 1: "table7"}
SHIFTED = "mnist-shift"


# -- domain shift --------------------------------------------------------------------------------


def mnist_shift() -> str:
    """Accuracy and ECE of each variant of the shipped set, over all its rows."""
    found = {}
    for name, severity in datasets.shifted(SHIFTED):
        data = datasets.load(f"{SHIFTED}:{name}:{severity}")
        scores = summary(softmax(data.logits), data.labels)
        found[name, severity] = [f"{100 * scores[k]:.2f}" for k in ("accuracy", "ece")]
    names = [name for name, severity in found if severity == 1]
    missing = ["", ""]
    lines = [
        [n.replace("_", " "), *found.get((n, 1), missing), *found.get((n, 5), missing)]
        for n in names
    ]
    lines.append(["none", *found["none", 0], *missing])
    head = ["", "accuracy, severity 1", "ECE", "accuracy, severity 5", "ECE"]
    return table(head, lines)


# -- Luo et al. ----------------------------------------------------------------------------------


def _rows(severity: int, what: str, **facts: Any) -> Rows:
    return lines_where(results(SEVERITIES[severity]).rows, what=what, **facts)


def _methods(severity: int, noise: str) -> dict[str, Record]:
    return {r["method"]: r for r in _rows(severity, "method", noise=noise)}


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

    lines = []
    for name, found in medians.items():
        private = sorted(luo.PAPER_PRIVATE, key=found.__getitem__)
        first = next(m for m in private if m != "acc-t")
        behind = [f"{found[m] / found['acc-t']:.2f}" for m in (first, "one-source", "none")]
        than = "worse" if found[private[-1]] > found["none"] else "better"
        last = f"{luo.TITLES[private[-1]]}, {than} than none"
        lines.append([name, luo.TITLES[first], *behind, last])
    head = ["median / Acc-T's", "next private method", "its", "one source's"]
    return table([*head, "no recalibration's", "last private method"], lines)


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
    rows = [r for r in _rows(5, "aggregation") if r[r["sweep"]] in _SHOWN.get(r["sweep"], ())]
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
    return (
        f"{table(head, lines)}\n\nWith {luo.SMALLEST} to {luo.MOST} sources the ECE becomes so "
        f"many times smaller: {told}."
    )


def luo_searches(severity: int) -> str:
    """The searches against each other."""
    found = {(r["method"], r["noise"]): r for r in _rows(severity, "search")}
    head = ["search", *(words for noise in NOISES for words in (f"{noise}, median", "best in"))]
    lines = [
        [title, *(text for noise in NOISES for text in _searched(found.get((method, noise))))]
        for method, title in luo.SEARCHES.items()
    ]
    first = {
        noise: min(_rows(severity, "search", noise=noise), key=lambda r: float(r["median"]))
        for noise in NOISES
    }
    best = ", ".join(f"{r['title']} under {noise} noise" for noise, r in first.items())
    return f"{table(head, lines)}\n\nThe lowest median of severity {severity}: {best}."


def _searched(row: Record | None) -> list[str]:
    return ["", ""] if row is None else [f"{row['median']:.4f}", f"{100 * row['best']:.0f} %"]


def luo_short() -> str:
    """What README says of it."""
    (local, central), calm = (_methods(5, n) for n in NOISES), _methods(1, Local.name)
    private = [m for m in luo.PAPER_PRIVATE if m != "acc-t"]
    second = min(private, key=lambda m: float(local[m]["median"]))
    worse = [m for m in luo.PAPER_PRIVATE if calm[m]["median"] > calm["none"]["median"]]
    ece = {m: f"{100 * row['median']:.1f} %" for m, row in local.items()}
    return (
        "`fedcal reproduce luo-table1`, `luo-table7` and `luo-figures` run Luo et al.'s study of "
        "recalibration under domain shift (500 random divisions of each setting) on shifted MNIST. "
        f"Median ECE at severity 5: Acc-T {ece['acc-t']}, the next private method "
        f"({luo.TITLES[second]}) {ece[second]}, no recalibration "
        f"{ece['none']}. At severity 1, where this network needs no recalibration, "
        f"{len(worse)} of {len(luo.PAPER_PRIVATE)} private methods under local noise do harm. One "
        "noise on the secure sum instead of each source's own brings Acc-T to "
        f"{100 * central['acc-t']['median']:.1f} %, [and more, with what does not hold](luo.md)."
    )


# -- trust models --------------------------------------------------------------------------------

TRUST = "trust-models"
_STEADY = ("nllt", "ecet")
"""Searches that noise drowns: what they give lies in [0.5, 3] whatever the noise."""


def trust_models() -> str:
    """What trust models and units cost, and which combinations are worth little."""
    lines = comparison(TRUST)
    before, pooled = (mean(one(lines, method=m)) for m in ("none", "pooled-temperature"))
    columns = list(product((User.name, Example.name), NOISY))
    by_key: dict[str, list[Record]] = {}
    for method in dict.fromkeys(line["method"] for line in lines if not line["baseline"]):
        mine = lines_where(lines, method=method)
        by_key[method] = [one(mine, unit=unit, trust=trust) for unit, trust in columns]
    weak = []
    for k, (unit, trust) in enumerate(columns):
        ece = {m: found[k]["after"]["ece"] for m, found in by_key.items()}
        names = [f"`{m}`" for m, e in ece.items() if e["mean"] + e["std"] >= before]
        weak += [f"  * unit `{unit}`, `{trust}`: {', '.join(names)}"] if names else []
    means = {m: [100 * mean(line) for line in by_key[m]] for m in _STEADY}
    steady = ", ".join(f"`{m}` {min(v):.1f} to {max(v):.1f}" for m, v in means.items())
    head = ["ECE, %", *(f"{unit}, {trust}" for unit, trust in columns)]
    rows = [[f"`{m}`", *map(percent, found)] for m, found in by_key.items()]
    return (
        f"Uncalibrated: {100 * before:.2f}; all rows in one place, without privacy: "
        f"{100 * pooled:.2f}. Commit {read(TRUST)['commit']} made it, by one command:\n\n"
        f"<!-- not run: 211 runs -->\n```console\n$ {command(TRUST)}\n```\n\n"
        f"{table(head, rows)}\n\n"
        "* No better than no calibrator, or by less than a standard deviation:\n"
        + "\n".join(weak)
        + f"\n* ECE from the best column to the worst: {steady} %."
    )


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
