"""What README and the guide say of results: sentences and tables with the numbers filled in.

Words that depend on a number (which is lower, how many, whether) are chosen here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from statistics import fmean
from typing import Any

from fedcal.experiments.comparison.summary import Line
from fedcal.experiments.comparison.table import Cells, as_markdown
from fedcal.experiments.reproduce.binning_pays import crossover
from fedcal.experiments.reproduce.claims import Verdict, mean_ratio
from fedcal.experiments.reproduce.comparisons import command, lines_where
from fedcal.experiments.reproduce.expected import read, shipped
from fedcal.experiments.reproduce.result import Reproduction
from fedcal.experiments.reproduce.verdicts import expected_verdicts, unsure
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


def _names(values: Iterable[str], none: str = "none") -> str:
    *most, last = [f"`{v}`" for v in values] or [none]
    return f"{', '.join(most)} and {last}" if most else last


def _percent(line: Line, metric: str = "ece", spread: bool = True) -> str:
    """Mean and, if it has any, spread of a metric, in %."""
    mean, std = (100 * line["after"][metric][k] for k in ("mean", "std"))
    digits = 3 if metric == "classwise_ece" else 2
    return f"{mean:.{digits}f}" + (f" ± {std:.{digits}f}" if spread and std else "")


def _one(lines: Sequence[Line], **facts: Any) -> Line:
    (line,) = lines_where(lines, **facts)
    return line


def _mean(line: Line, metric: str) -> float:
    return float(line["after"][metric]["mean"])


# -- README --------------------------------------------------------------------------------------


def demo_headline() -> str:
    """What the picture at the top shows, over five seeds."""
    lines = comparison("demo")
    newton = _one(lines, method="fednewton", epsilon=1.0)
    pooled = _one(lines, method="pooled-temperature")
    near = _mean(newton, "classwise_ece") <= 1.02 * _mean(pooled, "classwise_ece")
    how = "as well as" if near else "nearly as well as"
    return (
        "**One line of shell, `fedcal simulate --epsilon 1 --out run`, makes this picture: 100 "
        "label-skewed clients calibrate a real network at user-level epsilon = 1 "
        f"{how} if all their rows lay in one place.** It is seed 0; over five seeds ECE is "
        f"{_percent(newton)} % and classwise ECE {_percent(newton, 'classwise_ece', False)}, with "
        f"all rows in one place {_percent(pooled)} and {_percent(pooled, 'classwise_ece')}. "
        "`make demo` compares all methods."
    )


def demo_short() -> str:
    """Eight rows of the demo's table, and what most want to know of them."""
    lines = comparison("demo")
    rows = [_one(lines, method=m) for m in ("none", "pooled-temperature")]
    rows += [_one(lines, method="fednewton", epsilon=None)]
    rows += [
        _one(lines, method=method, epsilon=1.0, **more)
        for method, more in (
            ("fednewton", {}),
            ("fedoneshot", {}),
            ("fedtemp", {}),
            ("fedopvector", {}),
            ("fedbbq", {"settings": {"weighting": "all"}}),
        )
    ]
    cells = Cells(lines)
    kept = [cells.headings.index(h) for h in _SHORT]
    texts = [list(_SHORT), *([cells.texts(row)[k] for k in kept] for row in rows)]
    head, *body = ("| " + " | ".join(row) + " |" for row in texts)
    return "\n".join([head, "|---" + "|---:" * (len(_SHORT) - 1) + "|", *body])


_SHORT = ("method", "epsilon", "accuracy %", "ECE %", "cwECE %", "bytes up / down")


def first_ece() -> str:
    """What the first run of the docs comes to over five seeds."""
    lines = comparison("demo")
    newton = _one(lines, method="fednewton", epsilon=1.0)
    return (
        "ECE is the gap between what the model says and how often it is right: "
        f"{_percent(_one(lines, method='none'))} % before, {_percent(newton)} after, over five "
        "seeds. One temperature fitted on all 5,000 rows in one place gives "
        f"{_percent(_one(lines, method='pooled-temperature'))}."
    )


def searched() -> str:
    """How often the method that we recommend was first."""
    won, cells = _first("ece")["acct"], len(_settings())
    return (
        "With privacy begin with `--method acct --set search=auto`: beside `fednewton` and "
        f"`fedoneshot` it has the lowest ECE in {won} of {cells} settings of network, clients and "
        "epsilon ([choosing a method](choosing-a-method.md))."
    )


def reproduced() -> str:
    """The private temperatures and the papers' claims in a few sentences."""
    ratios = {
        title: (_ratio(title, "epsilon = 1,"), _ratio(title, "epsilon = 0.1,"))
        for title in ("FedOneShot", "FedNewton", "FedTemp", "FedTemp (mean of T)")
    }
    said = ", ".join(f"{title}'s {a:.2f} ({b:.2f})" for title, (a, b) in ratios.items())
    return (
        "In short: classwise ECE over that of the pooled, non-private temperature, mean of four "
        "networks, at epsilon = 1 with 100 clients (at epsilon = 0.1 with 1,000), is "
        f"{said}. {claims_in_short()} [All of it, with what does not hold]"
        "(reproduce.md)."
    )


def _ratio(title: str, row: str) -> float:
    cells = results("private-temperature").cells
    pooled = [c for c in cells if c.title == "pooled temperature"]
    found = mean_ratio(
        [*pooled, *(c for c in cells if c.row.startswith(row))], title, pooled[0].title
    )
    if found is None:
        raise LookupError(f"no {title} in {row}")
    return found


def claims_in_short() -> str:
    """How many of the paper's claims hold, and which ones nowhere."""
    all_ = [v for name in PAPER for v in _of_paper(name)]
    words: dict[str, list[Verdict]] = {"holds": [], "holds in part": [], "does not hold": []}
    for verdict in all_:
        words[verdict.word].append(verdict)
    doubted = sum(
        bool(unsure(v, expected_verdicts(name))) for name in PAPER for v in _of_paper(name)
    )
    nowhere = " ".join(
        f'"{text}"' for text in dict.fromkeys(v.text for v in words["does not hold"])
    )
    return (
        f"Of {len(all_)} claims that Maddock et al. make of tables 2 and 3 and figures 2 and 3, "
        f"{len(words['holds'])} hold here, {len(words['holds in part'])} on some networks "
        f"and {len(words['does not hold'])} on none; {doubted} depend on seeds on some network. On "
        f"none: {nowhere or '-'}"
    )


def _of_paper(name: str) -> list[Verdict]:
    return [v for v in results(name).verdicts if v.where != OURS]


# -- reproduce -----------------------------------------------------------------------------------


def temperature_ratios() -> str:
    """The last table of `private-temperature`, and what we wanted of it."""
    found = results("private-temperature")
    means = {
        title: mean_ratio(found.cells, title, "pooled temperature") or 0.0
        for title in ("FedOneShot", "FedNewton", "FedTemp", "FedTemp (mean of T)")
    }
    said = ", ".join(f"{title} {value:.2f}" for title, value in means.items())
    met = [title for title in ("FedOneShot", "FedNewton") if means[title] <= 1.05]
    return (
        f"{markdown(found.blocks[-1])}\nWe wanted at most 1.05 on average over all "
        f"lines. It is: {said}. So {_plain(met)} it."
    )


def _plain(met: Sequence[str]) -> str:
    if len(met) == 1:
        return f"{met[0]} alone of ours meets"
    return "both of ours meet" if met else "neither of ours meets"


# -- choosing a method ---------------------------------------------------------------------------

_BY_CLIENTS = ("fednewton", "fedoneshot", "fedtemp", "fedbbq")


def by_clients(data: str) -> str:
    """ECE of four methods by clients and budget."""
    lines = lines_where(comparison("choosing-clients"), data=data)
    base = {line["method"]: _percent(line) for line in lines if line["baseline"]}
    places = dict.fromkeys((li["clients"], li["epsilon"]) for li in lines if not li["baseline"])
    rows = [
        [
            f"{clients}",
            f"{epsilon:g}",
            *(
                _percent(_one(lines, clients=clients, epsilon=epsilon, method=method))
                for method in _BY_CLIENTS
            ),
        ]
        for clients, epsilon in sorted(places, key=lambda p: (p[0], -p[1]))
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


def _settings() -> dict[tuple[Any, ...], list[Line]]:
    """Network, clients and epsilon -> the lines of the methods compared there."""
    found: dict[tuple[Any, ...], list[Line]] = {}
    for line in comparison("choosing-searches"):
        if not line["baseline"]:
            found.setdefault((line["data"], line["clients"], line["epsilon"]), []).append(line)
    return found


def _first(metric: str) -> dict[str, int]:
    """Method -> in how many settings its mean is the lowest."""
    best = [min(mine, key=lambda li: _mean(li, metric))["method"] for mine in _settings().values()]
    return {method: best.count(method) for method in _SEARCHED}


def by_search() -> str:
    """Three methods over four networks: means, and how often each is first."""
    budgets = list(dict.fromkeys(epsilon for *_, epsilon in _settings()))
    label = {"acct": "`acct`, `search=auto`"}

    def mean(method: str, epsilon: float) -> str:
        mine = [li for k, lines in _settings().items() if k[2] == epsilon for li in lines]
        return f"{100 * fmean(_mean(li, 'ece') for li in mine if li['method'] == method):.2f}"

    rows = [[label.get(m, f"`{m}`"), *(mean(m, e) for e in budgets)] for m in _SEARCHED]
    ahead: dict[str, int] = {}
    for (data, *_), lines in _settings().items():
        ece = {li["method"]: _mean(li, "ece") for li in lines}
        if ece["fedoneshot"] < ece["acct"]:
            ahead[data] = ahead.get(data, 0) + 1
    where = ", ".join(f"{count} of {data}" for data, count in ahead.items()) or "none"
    counts = [_first(metric)["acct"] for metric in ("ece", "classwise_ece", "nll")]
    return (
        table(["mean ECE over these, %", *(f"epsilon = {e:g}" for e in budgets)], rows)
        + f"\n\nOf the {len(_settings())} cells `acct` has the lowest ECE in {counts[0]}, the "
        f"lowest classwise ECE in {counts[1]} and the lowest NLL in {counts[2]}. Cells in which "
        f"`fedoneshot` has a lower ECE than it: {where}."
    )


_TRUSTED = ("fednewton", "fednewton-entropy", "fedoneshot", "acct")


def by_trust() -> str:
    """ECE by trust model and unit; then the baselines."""
    lines = comparison("choosing-trust")
    dealt = [line for line in lines if not line["baseline"]]
    places = dict.fromkeys((li["data"], li["unit"], li["trust"]) for li in dealt)
    rows = [
        [
            data,
            f"`{unit}`",
            f"`{trust}`",
            *(_percent(_one(lines, data=data, unit=unit, trust=trust, method=m)) for m in _TRUSTED),
        ]
        for data, unit, trust in places
    ]
    head = ["data", "unit", "trust", *(f"`{m}`" for m in _TRUSTED[:-1]), "`acct`, `search=auto`"]

    def base(data: str, method: str) -> str:
        return _percent(_one(lines, data=data, method=method))

    beside = "; ".join(
        f"on {data} the model itself has {base(data, 'none')}, all rows in one place "
        f"{base(data, 'pooled-temperature')}, and one client with its own rows alone "
        f"{base(data, 'one-source')}"
        for data in dict.fromkeys(place[0] for place in places)
    )
    return f"{table(head, rows, left=3)}\n\nBeside them, {beside}.\n\n{_worth(lines)}"


def _worth(lines: Sequence[Line]) -> str:
    """Which methods are better than the model itself on all data, by trust and unit."""
    told = []
    for unit in (User.name, Example.name):
        for trust in NOISY:
            better = [
                method
                for method in _TRUSTED
                if all(
                    _mean(line, "ece") < _mean(_one(lines, data=line["data"], method="none"), "ece")
                    for line in lines_where(lines, unit=unit, trust=trust, method=method)
                )
            ]
            every = len(better) == len(_TRUSTED)
            told.append(f"* `{trust}`, unit `{unit}`: {'all four' if every else _names(better)}")
    return "Better than the model itself on both:\n\n" + "\n".join(told)


def binning_pays() -> str:
    """The least number of clients by network and budget."""
    found = [r for r in crossover(results("binning-pays").rows) if r["epsilon"] != "inf"]
    budgets = list(dict.fromkeys(r["epsilon"] for r in found))
    by_data: dict[str, list[dict[str, Any]]] = {}
    for row in found:
        by_data.setdefault(row["data"], []).append(row)
    most = max(r["most_clients"] for r in found)
    rows = [
        [
            data
            if mine[0]["most_clients"] == most
            else f"{data} (up to {mine[0]['most_clients']:,})",
            *("none" if r["clients"] is None else f"{r['clients']:,}" for r in mine),
        ]
        for data, mine in by_data.items()
    ]
    least = {
        e: min((r["clients"] for r in found if r["epsilon"] == e and r["clients"]), default=None)
        for e in budgets
    }
    said = ", ".join(f"{v:,} at epsilon = {e:g}" for e, v in least.items() if v is not None)
    return table(["data", *(f"epsilon = {e:g}" for e in budgets)], rows) + (
        f"\n\nSo the fewest clients with which it paid anywhere are: {said or 'none'}."
    )


def pooled_binning() -> str:
    """Whether binning beats a temperature where nothing is noisy."""
    found: dict[str, dict[str, float]] = {}
    for cell in results("maddock-table2").cells:
        found.setdefault(cell.network, {})[cell.title] = cell.mean
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
