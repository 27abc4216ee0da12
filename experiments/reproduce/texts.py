"""What README and the guide say of results: sentences and tables with the numbers filled in.

Words that depend on a number (which is lower, how many, whether) are chosen here, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import groupby, product
from statistics import fmean
from typing import Any

from fedcal.experiments.comparison.summary import Line
from fedcal.experiments.comparison.table import Cells, as_markdown
from fedcal.experiments.reproduce.binning_pays import crossover
from fedcal.experiments.reproduce.cells import MEAN
from fedcal.experiments.reproduce.check import unsure
from fedcal.experiments.reproduce.comparisons import command
from fedcal.experiments.reproduce.expected import read, shipped
from fedcal.experiments.reproduce.maddock import mean_ratio
from fedcal.experiments.reproduce.registry import experiment
from fedcal.experiments.reproduce.result import Reproduction
from fedcal.experiments.show.tables import markdown
from fedcal.trust import NOISY
from fedcal.units import Example, User

PAPER = ("maddock-table2", "maddock-table3", "maddock-figure2", "maddock-figure3")
OURS = "ours"

results: Callable[[str], Reproduction] = cache(shipped)
"""The shipped results of an experiment, read once."""


@cache
def comparison(name: str) -> list[Line]:
    """The shipped lines of a comparison."""
    found: list[Line] = read(name)["results"]
    return found


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A Markdown table whose first columns are text."""
    rule = ["---"] * left + ["---:"] * (len(head) - left)
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *rows))


def lines_where(lines: Sequence[Line], **facts: Any) -> list[Line]:
    """Those with all of these facts."""
    return [line for line in lines if all(line[k] == v for k, v in facts.items())]


def one(lines: Sequence[Line], **facts: Any) -> Line:
    """The only one with all of these facts."""
    (line,) = lines_where(lines, **facts)
    return line


def mean(line: Line, metric: str = "ece") -> float:
    """Of a metric, over seeds."""
    return float(line["after"][metric]["mean"])


def percent(line: Line, metric: str = "ece", spread: bool = True) -> str:
    """Mean and, if it has any, spread of a metric, in %."""
    std = 100 * line["after"][metric]["std"]
    digits = 3 if metric == "classwise_ece" else 2
    return f"{100 * mean(line, metric):.{digits}f}" + (
        f" ± {std:.{digits}f}" if spread and std else ""
    )


# -- README --------------------------------------------------------------------------------------


def demo_headline() -> str:
    """What the picture at the top shows, over five seeds."""
    lines = comparison("demo")
    newton = one(lines, method="fednewton", epsilon=1.0)
    pooled = one(lines, method="pooled-temperature")
    near = mean(newton, "classwise_ece") <= 1.02 * mean(pooled, "classwise_ece")
    how = "as well as" if near else "nearly as well as"
    return (
        "**One line of shell, `fedcal simulate --epsilon 1 --out run`, makes this picture: 100 "
        "label-skewed clients calibrate a real network at user-level epsilon = 1 "
        f"{how} if all their rows lay in one place.** It is seed 0; over five seeds ECE is "
        f"{percent(newton)} % and classwise ECE {percent(newton, 'classwise_ece', False)}, with "
        f"all rows in one place {percent(pooled)} and {percent(pooled, 'classwise_ece')}. "
        "`make demo` compares all methods."
    )


def demo_short() -> str:
    """Eight rows of the demo's table, and what most want to know of them."""
    lines = comparison("demo")
    rows = [one(lines, method=m) for m in ("none", "pooled-temperature")]
    rows += [one(lines, method="fednewton", epsilon=None)]
    named = ("fednewton", "fedoneshot", "fedtemp", "fedopvector")
    rows += [one(lines, method=method, epsilon=1.0) for method in named]
    rows += [one(lines, method="fedbbq", epsilon=1.0, settings={"weighting": "all"})]
    cells = Cells(lines)
    kept = [cells.headings.index(h) for h in _SHORT]
    texts = [list(_SHORT), *([cells.texts(row)[k] for k in kept] for row in rows)]
    head, *body = ("| " + " | ".join(row) + " |" for row in texts)
    return "\n".join([head, "|---" + "|---:" * (len(_SHORT) - 1) + "|", *body])


_SHORT = ("method", "epsilon", "accuracy %", "ECE %", "cwECE %", "bytes up / down")


def first_ece() -> str:
    """What the first run of the docs comes to over five seeds."""
    lines = comparison("demo")
    newton = one(lines, method="fednewton", epsilon=1.0)
    return (
        "ECE is the gap between what the model says and how often it is right: "
        f"{percent(one(lines, method='none'))} % before, {percent(newton)} after, over five "
        "seeds. One temperature fitted on all 5,000 rows in one place gives "
        f"{percent(one(lines, method='pooled-temperature'))}."
    )


def searched() -> str:
    """How often the method that we recommend was first."""
    won, cells = _first("ece")["acct"], len(_settings())
    return (
        "With privacy begin with `--method acct --set search=auto`: beside `fednewton` and "
        f"`fedoneshot` it has the lowest ECE in {won} of {cells} settings of network, clients and "
        "epsilon ([choosing a method](choosing-a-method.md))."
    )


_TITLES = ("FedOneShot", "FedNewton", "FedTemp", "FedTemp (mean of T)")


def _ratio(title: str, row: str = "") -> float:
    """Mean classwise ECE over that of the pooled temperature, in the lines of that row."""
    mine = [
        r
        for r in results("private-temperature").rows
        if r["row"].startswith(row) or r["title"] == "pooled temperature"
    ]
    return mean_ratio(mine, title, "pooled temperature") or math.nan


def reproduced() -> str:
    """The private temperatures and the papers' claims in a few sentences."""
    said = ", ".join(
        f"{title}'s {_ratio(title, 'epsilon = 1,'):.2f} ({_ratio(title, 'epsilon = 0.1,'):.2f})"
        for title in _TITLES
    )
    return (
        "In short: classwise ECE over that of the pooled, non-private temperature, mean of four "
        "networks, at epsilon = 1 with 100 clients (at epsilon = 0.1 with 1,000), is "
        f"{said}. {claims_in_short()} [All of it, with what does not hold]"
        "(reproduce.md)."
    )


def claims_in_short() -> str:
    """How many of the paper's claims hold, and which ones nowhere."""
    claims = [(n, v) for n in PAPER for v in results(n).verdicts if v.where != OURS]
    doubted = sum(bool(unsure(experiment(name), verdict)) for name, verdict in claims)
    words = [verdict.word for _, verdict in claims]
    bad = dict.fromkeys(f'"{v.text}"' for _, v in claims if v.word == "does not hold")
    return (
        f"Of {len(claims)} claims that Maddock et al. make of tables 2 and 3 and figures 2 and 3, "
        f"{words.count('holds')} hold here, {words.count('holds in part')} on some networks "
        f"and {words.count('does not hold')} on none; {doubted} depend on seeds on some network. "
        f"On none: {' '.join(bad) or '-'}"
    )


# -- reproduce -----------------------------------------------------------------------------------


def temperature_ratios() -> str:
    """The last table of `private-temperature`, and what we wanted of it."""
    means = {title: _ratio(title) for title in _TITLES}
    said = ", ".join(f"{title} {value:.2f}" for title, value in means.items())
    met = [title for title in _TITLES[:2] if means[title] <= 1.05]
    who = ["neither of ours meets", f"{'-'.join(met)} alone of ours meets", "both of ours meet"]
    return (
        f"{markdown(results('private-temperature').blocks[-1])}\nWe wanted at most 1.05 "
        f"on average over all lines. It is: {said}. So {who[len(met)]} it."
    )


# -- choosing a method ---------------------------------------------------------------------------

_BY_CLIENTS = ("fednewton", "fedoneshot", "fedtemp", "fedbbq")


def by_clients(data: str) -> str:
    """ECE of four methods by clients and budget."""
    lines = lines_where(comparison("choosing-clients"), data=data)
    base = {line["method"]: percent(line) for line in lines if line["baseline"]}
    dealt = lines_where(lines, baseline=False)
    places = sorted({(line["clients"], -line["epsilon"]) for line in dealt})
    rows = [
        [
            f"{clients}",
            f"{-below:g}",
            *(percent(one(dealt, clients=clients, epsilon=-below, method=m)) for m in _BY_CLIENTS),
        ]
        for clients, below in places
    ]
    return (
        f"Uncalibrated {base['none']}, one temperature on all rows in one place "
        f"{base['pooled-temperature']}, BBQ on all rows {base['pooled-bbq']}:\n\n"
        + table(["clients", "epsilon", *_BY_CLIENTS], rows, left=0)
    )


def console(name: str) -> str:
    """The command that makes a comparison."""
    return f"<!-- not run: hundreds of runs -->\n```console\n$ {command(name)} --out {name}\n```"


_SEARCHED = ("fednewton", "fedoneshot", "acct")
_LABELS = {"acct": "`acct`, `search=auto`"}


def _settings() -> dict[tuple[Any, ...], list[Line]]:
    """Network, clients and epsilon -> the lines of the methods compared there."""
    found: dict[tuple[Any, ...], list[Line]] = {}
    for line in comparison("choosing-searches"):
        if not line["baseline"]:
            found.setdefault((line["data"], line["clients"], line["epsilon"]), []).append(line)
    return found


def _first(metric: str) -> dict[str, int]:
    """Method -> in how many settings its mean is the lowest."""
    best = [min(mine, key=lambda li: mean(li, metric))["method"] for mine in _settings().values()]
    return {method: best.count(method) for method in _SEARCHED}


def by_search() -> str:
    """Three methods over four networks: means, and how often each is first."""
    lines = lines_where(comparison("choosing-searches"), baseline=False)
    budgets = list(dict.fromkeys(line["epsilon"] for line in lines))
    rows = [
        [
            _LABELS.get(m, f"`{m}`"),
            *(
                f"{100 * fmean(map(mean, lines_where(lines, method=m, epsilon=e))):.2f}"
                for e in budgets
            ),
        ]
        for m in _SEARCHED
    ]
    behind = [
        place[0]
        for place, mine in _settings().items()
        if mean(one(mine, method="fedoneshot")) < mean(one(mine, method="acct"))
    ]
    where = ", ".join(f"{behind.count(data)} of {data}" for data in dict.fromkeys(behind))
    counts = [_first(metric)["acct"] for metric in ("ece", "classwise_ece", "nll")]
    return (
        table(["mean ECE over these, %", *(f"epsilon = {e:g}" for e in budgets)], rows)
        + f"\n\nOf the {len(_settings())} cells `acct` has the lowest ECE in {counts[0]}, the "
        f"lowest classwise ECE in {counts[1]} and the lowest NLL in {counts[2]}. Cells in which "
        f"`fedoneshot` has a lower ECE than it: {where or 'none'}."
    )


_TRUSTED = ("fednewton", "fednewton-entropy", "fedoneshot", "acct")


def by_trust() -> str:
    """ECE by trust model and unit; the baselines; which methods are better than the model."""
    lines = comparison("choosing-trust")
    dealt = lines_where(lines, baseline=False)
    places = list(dict.fromkeys((line["data"], line["unit"], line["trust"]) for line in dealt))
    rows = [
        [
            *(data, f"`{unit}`", f"`{trust}`"),
            *(percent(one(dealt, data=data, unit=unit, trust=trust, method=m)) for m in _TRUSTED),
        ]
        for data, unit, trust in places
    ]
    head = ["data", "unit", "trust", *(_LABELS.get(m, f"`{m}`") for m in _TRUSTED)]
    base = {(line["data"], line["method"]): line for line in lines if line["baseline"]}
    beside = "; ".join(
        f"on {data} the model itself has {percent(base[data, 'none'])}, all rows in one place "
        f"{percent(base[data, 'pooled-temperature'])}, and one client with its own rows alone "
        f"{percent(base[data, 'one-source'])}"
        for data in dict.fromkeys(data for data, *_ in places)
    )
    better = []
    for unit, trust in product((User.name, Example.name), NOISY):
        mine = lines_where(dealt, unit=unit, trust=trust)
        worse = {li["method"] for li in mine if mean(li) >= mean(base[li["data"], "none"])}
        names = [f"`{m}`" for m in _TRUSTED if m not in worse] if worse else ["all four"]
        better.append(f"* `{trust}`, unit `{unit}`: {_joined(names)}")
    return (
        f"{table(head, rows, left=3)}\n\nBeside them, {beside}.\n\n"
        "Better than the model itself on both:\n\n" + "\n".join(better)
    )


def _joined(names: Sequence[str]) -> str:
    *most, last = names or ["`none`"]
    return f"{', '.join(most)} and {last}" if most else last


def binning_pays() -> str:
    """The least number of clients by network and budget."""
    found = [r for r in crossover(results("binning-pays").rows) if r["epsilon"] != "inf"]
    budgets = list(dict.fromkeys(r["epsilon"] for r in found))
    most = max(r["most_clients"] for r in found)
    rows, least = [], []
    for data, mine in groupby(found, key=lambda r: r["data"]):
        sizes = [(r["clients"], r["most_clients"]) for r in mine]
        limit = "" if sizes[0][1] == most else f" (up to {sizes[0][1]:,})"
        rows.append([f"{data}{limit}", *("none" if n is None else f"{n:,}" for n, _ in sizes)])
    for epsilon in budgets:
        paid = [r["clients"] for r in found if r["epsilon"] == epsilon and r["clients"]]
        least += [f"{min(paid):,} at epsilon = {epsilon:g}"] if paid else []
    return table(["data", *(f"epsilon = {e:g}" for e in budgets)], rows) + (
        f"\n\nSo the fewest clients with which it paid anywhere are: {', '.join(least) or 'none'}."
    )


def pooled_binning() -> str:
    """Whether binning beats a temperature where nothing is noisy."""
    found: dict[str, dict[str, float]] = {}
    for row in results("maddock-table2").rows:
        found.setdefault(row["network"], {})[row["title"]] = row[MEAN]
    wins = [n for n, of in found.items() if of["pooled BBQ"] < of["pooled temperature"]]
    return (
        "Without privacy [table 2](reproduce.md) is the better comparison: with all rows in one "
        f"place BBQ has a lower classwise ECE than one temperature on {len(wins)} of {len(found)} "
        f"networks ({', '.join(wins) or 'none'})."
    )


BLOCKS: Mapping[str, Callable[[], str]] = {
    "demo-headline": demo_headline,
    "first-ece": first_ece,
    "demo-short": demo_short,
    "demo-table": lambda: as_markdown(comparison("demo")),
    "searched": searched,
    "reproduced": reproduced,
    "claims-in-short": claims_in_short,
    "temperature-ratios": temperature_ratios,
    "by-clients-resnet110-cifar10": partial(by_clients, "resnet110-cifar10"),
    "by-clients-imdb-binary": partial(by_clients, "imdb-binary"),
    "by-search": by_search,
    "by-trust": by_trust,
    **{
        f"{name}-command": partial(console, name)
        for name in ("choosing-clients", "choosing-searches", "choosing-trust")
    },
    "when-binning-pays": binning_pays,
    "pooled-binning": pooled_binning,
}
"""By the name that a page gives."""
