"""What README and the guide say of results: `texts.md.j2`, filled in from the shipped results.

The template has the sentences and tables, and chooses words that depend on a number (which is
lower, how many, whether); what it asks for is computed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from fedcal import datasets
from fedcal.core.numerics import softmax
from fedcal.experiments.report.tables import markdown, plain
from fedcal.experiments.research.benchmarks import published_sums
from fedcal.experiments.research.studies import rows, subgroups
from fedcal.experiments.research.studies.cells import MEAN
from fedcal.experiments.research.studies.check import unsure
from fedcal.experiments.research.studies.comparisons import command
from fedcal.experiments.research.studies.expected import FOLDER, read, shipped
from fedcal.experiments.research.studies.luo import results as luo
from fedcal.experiments.research.studies.luo.methods import COLUMNS, NOISES
from fedcal.experiments.research.studies.maddock.claims import mean_ratio
from fedcal.experiments.research.studies.registry import EXPERIMENTS, experiment
from fedcal.experiments.research.studies.result import Reproduction
from fedcal.experiments.research.studies.spec import Record, Rows
from fedcal.experiments.research.studies.zhang import tables as zhang
from fedcal.experiments.runs.comparison.table import Line, as_table
from fedcal.metrics import summary
from fedcal.trust import NOISY
from fedcal.units import Example, User

TABLES = ("maddock-table2", "maddock-table3", "maddock-figure2", "maddock-figure3")
"""Whose claims are counted."""

TRUSTED = ("fednewton", "fednewton-entropy", "fedoneshot", "acct")
SHIFTED = "mnist-shift"
TABLE_OF = {5: "table1", 1: "table7"}
"""Severity -> table of Luo et al."""

results: Callable[[str], Reproduction] = cache(shipped)
"""The shipped results of an experiment, read once."""


@cache
def comparison(name: str) -> list[Line]:
    """Return the shipped lines of a comparison."""
    return [line | {"epsilon": float(line["epsilon"])} for line in read(name)["results"]]


def where(lines: str | Sequence[Line], **facts: Any) -> list[Line]:
    """Filter lines, or those of a comparison, by all of these facts."""
    return rows.where(comparison(lines) if isinstance(lines, str) else lines, **facts)


def one(lines: str | Sequence[Line], **facts: Any) -> Line:
    """Return the only line with all of these facts."""
    (line,) = where(lines, **facts)
    return line


def mean(line: Line, metric: str = "ece") -> float:
    """Return the mean of a metric over seeds."""
    return float(line["after"][metric]["mean"])


def percent(line: Line, metric: str = "ece", spread: bool = True) -> str:
    """Mean and, if it has any, spread of a metric, in %."""
    std = 100 * line["after"][metric]["std"]
    digits = 3 if metric == "classwise_ece" else 2
    text = f"{100 * mean(line, metric):.{digits}f}"
    return f"{text} ± {std:.{digits}f}" if spread and std else text


# -- README, reproduce ---------------------------------------------------------------------------


def ratio(title: str, row: str = "") -> float:
    """Mean classwise ECE over that of the pooled temperature, in the lines of that row."""
    reference = "pooled temperature"
    lines = results("private-temperature").rows
    mine = [r for r in lines if r["row"].startswith(row) or r["title"] == reference]
    return mean_ratio(mine, title, reference) or math.nan


def papers_claims() -> Rows:
    """Return the claims of Maddock et al. and their verdicts."""
    return [
        {"text": v.text, "word": v.word, "unsure": bool(unsure(experiment(name), v))}
        for name in TABLES
        for v in results(name).verdicts
        if v.where != "ours"
    ]


# -- choosing a method ---------------------------------------------------------------------------


def searches() -> dict[tuple[Any, ...], dict[str, Line]]:
    """Network, clients and epsilon -> the lines of the methods compared there."""
    found: dict[tuple[Any, ...], dict[str, Line]] = {}
    for line in where("choosing-searches", baseline=False):
        place = (line["data"], line["clients"], line["epsilon"])
        found.setdefault(place, {})[line["method"]] = line
    return found


def first(metric: str) -> list[str]:
    """Return the method with the lowest mean, for each of the `searches`."""
    return [min(mine, key=lambda m: mean(mine[m], metric)) for mine in searches().values()]


def better_everywhere(unit: str, trust: str) -> list[str]:
    """Methods that are better than the model itself on all data."""
    lines = comparison("choosing-trust")
    base = {line["data"]: mean(line) for line in where(lines, method="none")}
    mine = where(lines, unit=unit, trust=trust)
    return [m for m in TRUSTED if all(mean(li) < base[li["data"]] for li in where(mine, method=m))]


# -- costs, domain shift, Luo et al. -------------------------------------------------------------


def noise_of_means(lines: Rows) -> list[list[float]]:
    """Return the noise of the mean by epsilon and rounds, smallest sampling rate first."""
    found: dict[tuple[float, int], list[float]] = {}
    for r in sorted(lines, key=lambda r: float(r["sampling_rate"])):
        found.setdefault((r["epsilon"], r["rounds"]), []).append(r["mean_std"])
    return list(found.values())


def shifts() -> dict[tuple[str, int], str]:
    """Accuracy and ECE of each variant of the shipped set, over all its rows."""
    found = {}
    for name, severity in datasets.shifted(SHIFTED):
        data = datasets.load(f"{SHIFTED}:{name}:{severity}")
        scores = summary(softmax(data.logits), data.labels)
        found[name, severity] = f"{100 * scores['accuracy']:.2f} | {100 * scores['ece']:.2f}"
    return found


def luo_rows(severity: int, what: str, **facts: Any) -> Rows:
    """Return rows of a table of Luo et al."""
    return where(results(f"luo-{TABLE_OF[severity]}").rows, what=what, **facts)


def luo_methods(severity: int, noise: str) -> dict[str, Record]:
    """Map each method to its result."""
    return {r["method"]: r for r in luo_rows(severity, "method", noise=noise)}


def _texts_of(name: str, line: Line) -> dict[str, str]:
    """Return a line of a comparison as its table shows it, by heading."""
    lines = comparison(name)
    table = as_table(lines)
    return dict(zip(table.columns, map(plain, table.rows[lines.index(line)]), strict=True))


# -- the template --------------------------------------------------------------------------------

_ASKED: dict[str, Any] = {
    function.__name__: function
    for function in (
        *(where, one, mean, percent, ratio, papers_claims, searches, first, command),
        *(better_everywhere, noise_of_means, shifts, luo_methods),
    )
} | {"paper_orders": zhang.orders}
_KNOWN: dict[str, Any] = {
    "inf": math.inf,
    "results": results,
    "SEARCHED": ("fednewton", "fedoneshot", "acct"),
    "LABELS": {"acct": "`acct`, `search=auto`"},
    "TRUSTED": TRUSTED,
    "UNITS_AND_TRUST": tuple(product((User.name, Example.name), NOISY)),
    "SEVERITIES": TABLE_OF,
    "NOISES": NOISES,
    "NOISY_METHODS": {column.method for column in COLUMNS if column.noise},
    "PAPER_ORDER": zhang.ORDER,
    "TITLES": luo.TITLES,
    "texts_of": _texts_of,
    "experiment": experiment,
    "unsure": unsure,
    "mean_of": fmean,
    "differences": lambda rows, key: [r[key] - r["numbers_up"] for r in rows],
}
_TESTS: Mapping[str, Callable[..., bool]] = {
    "made_by": lambda name, commit: read(name)["commit"] == commit,
    "behind_oneshot": lambda of: mean(of[1]["fedoneshot"]) < mean(of[1]["acct"]),
    "falls": lambda values: values == sorted(values, reverse=True),
    "within_a_std": lambda line, of: mean(line) + line["after"]["ece"]["std"] >= of,
    "below_temperature": lambda row, rows: (
        row[MEAN] < one(rows, title="pooled temperature", network=row["network"])[MEAN]
    ),
}


@cache
def _template() -> Any:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= _ASKED | _KNOWN
    environment.filters["commit"] = lambda name: read(name)["commit"]
    environment.tests |= _TESTS
    return environment.get_template("texts.md.j2").module


def filled(macro: str, *of: Any) -> str:
    """Render a macro of the template with `of`."""
    return str(getattr(_template(), macro)(*of)).strip()


def tables(name: str, some: slice = slice(None)) -> str:
    """Return the tables of an experiment, or some of them, as in `NAME.md`."""
    return "\n".join(map(markdown, results(name).blocks[some]))


def _claim(text: str, places: Mapping[str, Sequence[str]], named: bool) -> str:
    """Return a claim, its places by experiment, and the experiments' names if `named`."""
    every = [place for of in places.values() for place in of]
    if len(every) == 1 and len(places) == 1:
        text, places = f"{every[0]}: {text}", dict.fromkeys(places, ())
    notes = [
        ": ".join(filter(None, (name if named else "", "; ".join(dict.fromkeys(of)))))
        for name, of in places.items()
    ]
    return f"{text} ({'; '.join(notes)})" if any(notes) else text


def claims(names: Sequence[str]) -> str:
    """Return how many claims of these experiments hold, and a list of those that do not."""
    verdicts = {name: results(name).verdicts for name in names}
    counts = [
        f"`{name}` {sum(v.word == 'holds' for v in of)} of {len(of)}"
        for name, of in verdicts.items()
        if of
    ]
    failed: dict[str, dict[str, list[str]]] = {}
    for name, of in verdicts.items():
        for verdict in of:
            if verdict.word == "does not hold":
                text = verdict.text.rstrip(".")
                place, text = text.split(": ", 1) if ": " in text else ("", text)
                places = failed.setdefault(text, {}).setdefault(name.partition("-")[2], [])
                places += [place] if place else []
    lines = [f"* {_claim(text, places, len(names) > 1)}." for text, places in failed.items()]
    head = f"Claims that hold everywhere: {', '.join(counts)}."
    return "\n".join([head, *(["", "Claims that do not hold:", "", *lines] if lines else [])])


_NAMES = tuple(
    path.stem
    for name in EXPERIMENTS
    for path in sorted(FOLDER.glob(f"{name}.json")) + sorted(FOLDER.glob(f"{name}@*.json"))
)
_PAGES = {
    "maddock": (*TABLES, "private-temperature"),
    "demo": ("demo",),
    "trust-models": ("trust-models",),
    "audit": ("audit",),
    "no-site-harmed": ("no-site-harmed",),
    "five-hospitals": ("five-hospitals",),
    "luo": ("luo-table1", "luo-table7", "luo-figures"),
    "choosing": ("choosing-clients", "choosing-searches", "choosing-trust"),
    "amplification": ("amplification", "maddock-table6", "maddock-table7"),
    "evaluation": ("evaluation-errors", "evaluation-intervals"),
    "angelopoulos": tuple(name for name in _NAMES if name.startswith("angelopoulos-")),
    "zhang": tuple(name for name in _NAMES if name.startswith("zhang-")),
    "prediction-sets": (
        "prediction-sets-coverage",
        "prediction-sets-rows",
        "prediction-sets-users",
    ),
}
"""Page -> the experiments whose results it shows."""

_OTHER: Mapping[str, tuple[Callable[[], str], ...]] = {
    "secure-sums": (published_sums.trust, published_sums.costs),
    "subgroups": tuple(
        subgroups.BLOCKS[name] for name in ("subgroups-subjects", "subgroups-adult")
    ),
}
"""Pages with tables that do not belong to an experiment."""

COMPLETE = tuple(page for page in _PAGES if page not in ("demo", "trust-models", "choosing"))
"""Pages of docs/results/ that have a page of all their tables, made by `complete`."""


def complete(page: str) -> str:
    """Return every claim and table of a page of docs/results/, as Markdown."""
    if page in _OTHER:
        return "\n\n".join(table() for table in _OTHER[page])
    names = _PAGES[page]
    parts = [f"## `{name}`\n\n{filled('claims', name)}\n\n{tables(name)}" for name in names]
    return "\n\n".join(parts)


BLOCKS: Mapping[str, Callable[[], str]] = {
    **{k: block for k, block in subgroups.BLOCKS.items() if block not in _OTHER["subgroups"]},
    **{f"made-by-{page}": partial(filled, "made_by", names) for page, names in _PAGES.items()},
    **{f"{page}-claims": partial(claims, _PAGES[page]) for page in COMPLETE},
    "zhang-main": partial(tables, "zhang-table1@cifar10", slice(1)),
    "secure-sums-measured": published_sums.measured,
    "angelopoulos-draws": partial(tables, "angelopoulos-figure2", slice(1)),
    **{
        name.replace("_", "-"): partial(filled, name)
        for name, macro in sorted(vars(_template()).items())
        if getattr(macro, "arguments", None) == ()
    },
    **{
        f"by-clients-{name}": partial(filled, "by_clients", name)
        for name in ("resnet110-cifar10", "imdb-binary")
    },
    **{
        f"{name}-command": partial(filled, "console", name)
        for name in ("choosing-clients", "choosing-searches", "choosing-trust")
    },
}
"""By the name that a page gives; macros without parameters are blocks of their own name."""
