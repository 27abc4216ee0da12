"""What the guide says of rounds, sampling, bytes and seconds: see `texts`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fedcal.experiments.reproduce.spec import Record, Rows
from fedcal.experiments.reproduce.texts import lines_where, results, table

_PAIRS = (
    *((1, 0.1), (1, 1.0), (4, 0.1), (4, 1.0), (12, 0.1)),
    *((12, 0.5), (12, 1.0), (60, 0.1), (60, 1.0)),
)


def _rows(what: str, **facts: Any) -> Rows:
    return lines_where(results("amplification").rows, what=what, **facts)


def multipliers() -> str:
    """Noise multipliers at epsilon = 1 by five accounts, and what follows from them."""
    found = {(r["rounds"], r["sampling_rate"]): r for r in _rows("multiplier", epsilon=1.0)}
    keys = ("zcdp", "zcdp_standard", "rdp", "tight")
    rows = [
        [
            f"{rounds}",
            f"{rate:g}",
            *(f"{found[rounds, rate][k]:.2f}" for k in keys),
            f"{found[rounds, rate]['mean_std']:.1f}",
        ]
        for rounds, rate in _PAIRS
    ]
    head = [
        *("rounds R", "sampling q", "paper: zCDP", "zCDP, standard conversion", "RDP", "fedcal"),
        "fedcal / q",
    ]
    its, everybody = found[12, 0.1], found[12, 1.0]
    saved = 100 * (1 - everybody["tight"] / everybody["zcdp"])
    return table(head, rows, left=0) + (
        f"\n\nThe paper's column is its Lemma B.3 (rho = {its['rho']:.6f} for this budget) in its "
        f"Lemma B.7: at T = 12 and C = 0.5 its noise std is {its['paper_scaling_std']:.3f}. It "
        "lets every round count in full. Its own 12 rounds at q = 0.1 need "
        f"{its['zcdp'] / its['tight']:.1f} times less noise than that, once sampling is accounted "
        f"for; without sampling the tight account saves {saved:.0f} %.\n\n{_falls()}"
    )


def _falls() -> str:
    """Whether the noise of the mean falls with the sampling rate."""
    by_row: dict[tuple[float, int], dict[float, float]] = {}
    for r in _rows("multiplier"):
        by_row.setdefault((r["epsilon"], r["rounds"]), {})[r["sampling_rate"]] = r["mean_std"]
    stds = ([row[rate] for rate in sorted(row)] for row in by_row.values())
    falling = sum(row == sorted(row, reverse=True) for row in stds)
    rounds = [r for _, r in by_row]
    return (
        "The last column is what a method feels: its update is the noisy sum divided by q K, so "
        "the mean's noise is fedcal / q in units of C / K. **It falls as q grows in "
        f"{falling} of {len(by_row)} rows** (R = {min(rounds)} to {max(rounds)})."
    )


_METHODS = ("fedtemp", "fedtemp[average=temperature]", "fednewton")
_SHOWN = ((1, 1.0), (4, 0.1), (4, 1.0), (12, 0.1), (12, 1.0), (30, 1.0))


def sampled_runs() -> str:
    """Classwise ECE over rounds and sampling, in a table and in sentences."""
    found = {(r["method"], r["rounds"], r["sampling_rate"]): r for r in _rows("run", clients=100)}
    rows = [[m, *(_shown(found[m, rounds, q]) for rounds, q in _SHOWN)] for m in _METHODS]
    head = ["100 clients", *(f"R = {rounds}, q = {q:g}" for rounds, q in _SHOWN)]
    none, pooled = (_rows("run", method=m)[0]["cwece"] for m in ("none", "pooled-temperature"))
    return (
        "Classwise ECE in % at epsilon = 1, resnet110-cifar10, Dirichlet(0.1), mean of 5 seeds "
        f"with standard deviation. No calibration has {100 * none:.3f}, one temperature of all "
        f"rows in one place {100 * pooled:.3f}.\n\n{table(head, rows)}\n\n"
        f"{_best_runs(100, none)}\n{_best_runs(1000, none)}"
    )


def _shown(row: Record) -> str:
    return f"{100 * row['cwece']:.3f} ({100 * row['cwece_std']:.2f})"


def _best_runs(clients: int, none: float) -> str:
    """For each method its best cell, and how many are better than nothing."""
    said = []
    for method in _METHODS:
        mine = _rows("run", method=method, clients=clients)
        best = min(mine, key=lambda r: float(r["cwece"]))
        better = sum(r["cwece"] < none for r in mine)
        said.append(
            f"`{method}` {_shown(best)} at R = {best['rounds']}, q = {best['sampling_rate']:g}, "
            f"better than no calibration in {better} of {len(mine)}"
        )
    return f"* **{clients:,} clients**, the best of all R and q that were run: {'; '.join(said)}."


def sizes() -> str:
    """Bytes of a client in a round with privacy, beside the paper's."""
    found = lines_where(results("maddock-table6").rows, classes=10, clients=100, epsilon="1")
    rows = [
        [
            r["method"],
            "" if r["paper_up"] is None else f"{r['paper_up']:,} / {r['paper_down']:,}",
            *(f"{r[f'{k}_up']:,} / {r[f'{k}_down']:,}" for k in ("numbers", "record", "objects")),
        ]
        for r in found
    ]
    same = [r for r in found if r["paper_up"] is not None]
    equal = sum(r["numbers_up"] == r["paper_up"] for r in same)
    names, parts = ([r[k] - r["numbers_up"] for r in found] for k in ("record_up", "objects_up"))
    return (
        table(["method", "paper", "numbers", "record", "objects"], rows)
        + f"\n\nWhat a client sends is to the byte what the paper counts in {equal} of {len(same)} "
        f"methods. What it leaves out is the envelope: {min(names)} to {max(names)} bytes of array "
        f"header and names in a record, {min(parts)} to {max(parts)} in all parts of a message."
    )


def seconds() -> str:
    """CPU time of a client in a round, for two sizes of federation."""
    found = results("maddock-table7").rows
    few, many = (
        {r["method"]: r for r in lines_where(found, clients=clients, rows=rows)}
        for clients, rows in ((100, 50), (10_000, 5))
    )
    lines = []
    for method, row in few.items():
        paper = "" if row["paper"] is None else f"{1e6 * row['paper']:,.0f}"
        lines += [[method, *_micro(row), *_micro(many[method]), paper]] if method in many else []
    one = ["one by one", "many at once", "ratio", "Flower's loop / many"]
    head = ["method", *one, *(f"10,000 x 5: {words}" for words in one), "paper"]
    return f"{table(head, lines)}\n\n{_fifty(few, 'with 50 rows')} {_fifty(many, 'with 5 rows')}"


def _micro(row: Record) -> list[str]:
    loop, many = (1e6 * row[k] for k in ("loop", "vectorised"))
    return [
        f"{loop:,.0f}",
        f"{many:,.1f}" if many < 10 else f"{many:,.0f}",
        f"{row['ratio']:.1f}",
        f"{row['ratio_flower']:.0f}",
    ]


def _fifty(found: Mapping[str, Record], where: str) -> str:
    fast = [name for name, row in found.items() if row["ratio"] >= 50]
    ratios = [row["ratio"] for row in found.values()]
    return (
        f"For clients {where} many at once are {min(ratios):.1f} to {max(ratios):.1f} times as "
        f"fast as one by one, at least 50 times for {', '.join(fast) or 'none'}."
    )


BLOCKS: Mapping[str, Callable[[], str]] = {
    "multipliers": multipliers,
    "sampled-runs": sampled_runs,
    "bytes": sizes,
    "seconds": seconds,
}
"""By the name that a page gives."""
