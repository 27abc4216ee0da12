"""Text about results in README and docs, made from the results that ship.

A block of a page is what stands between two lines of its own,

    <!-- generated: NAME -->
    <!-- /generated -->

and is what `BLOCKS[NAME]()` gives: so no page contradicts the data. A sentence that quotes a result
belongs into a block, with the number computed there, or has no number.

`python -m experiments.studies.texts [NAME ...]` runs experiments, writes their results into the
package, and fills all blocks; look at the difference before you keep it.
"""

from __future__ import annotations

import argparse
import pkgutil
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, partial
from operator import itemgetter
from pathlib import Path
from statistics import fmean, median
from typing import Any

from experiments.studies import spec
from experiments.studies.expected import content, minutes, shipped, write
from experiments.studies.own.comparisons import METRICS, line_of
from experiments.studies.rows import grouped, one, where
from experiments.studies.run import Reproduction, pivot, reproduce
from experiments.studies.spec import EXPERIMENTS, Record, experiment, study_file
from fedcal.core.checks import one_of
from fedcal.core.pages import Table
from fedcal.results.comparison import as_table
from fedcal.results.terminal import markdown, plain
from fedcal.storage.atomic import atomic_file
from fedcal.strategies import STRATEGIES

ROOT = Path(__file__).resolve().parents[2]
PAPERS = ("maddock", "luo", "zhang", "angelopoulos", "evaluation")

results: Callable[[str], Reproduction] = cache(shipped)
"""The shipped results of an experiment, read once."""

# -- comparisons that README and docs quote ------------------------------------------------------

COMPARISONS = ["quality", *(n for n in EXPERIMENTS if n.startswith(("choosing", "trust")))]
"""Studies that are a `fedcal compare`."""


def command(name: str) -> str:
    """Return the command line that runs a comparison, as a block of the page."""
    options = (word for k, v in experiment(name).options.items() for word in (f"--{k}", str(v)))
    line = f"$ fedcal compare {shlex.join(options)} --out {name}"
    return f"<!-- not run: hundreds of runs -->\n```console\n{line}\n```"


def percent(row: Record, metric: str = "ece") -> str:
    """Mean and, if it has any, spread of a metric, in %."""
    mean, std = (100 * (row[key] or 0.0) for key in (metric, f"{metric} std"))
    digits = 3 if metric == "classwise_ece" else 2
    return f"{mean:.{digits}f}" + (f" ± {std:.{digits}f}" if std else "")


def pivoted(name: str, heads: Sequence[str], column: str, **facts: Any) -> str:
    """Return the ECE of a comparison's lines, with a column for each value of a fact."""
    rows = where(results(name).rows, baseline=False, **facts)

    def line(of: Record) -> tuple[str, ...]:
        return tuple(f"{of[k]:g}" if isinstance(of[k], float) else str(of[k]) for k in heads)

    beside = "; ".join(
        f"{row['method']} on {row['data']} {percent(row)}"
        for row in where(results(name).rows, baseline=True, **facts)
    )
    table = pivot("", rows, heads, line, column, percent)
    return f"{markdown(table)}\nECE, %. Beside it: {beside}."


def quality(split: str, least: int = 0, **facts: Any) -> str:
    """Return of each method the cells that it wins, its rate of harm, and median excess loss.

    Entries are split by a fact; rows have `facts`; a method with a line wins `least` cells by ECE
    and log loss. The excess is over the pooled temperature's log loss, as a share of that.
    """
    found, metrics = results("quality").rows, METRICS[1:]
    pooled = {r["data"]: r["nll"] for r in where(found, label="pooled temperature")}
    rows = where(found, baseline=False, **facts)
    cells = grouped(rows, "data", "clients", "unit", "epsilon").values()
    best = [(k, c[0][split], min(c, key=itemgetter(k))["label"]) for c in cells for k in metrics]
    lines = []
    for (label,), mine in grouped(rows, "label").items():
        parts = grouped(mine, split).items()
        shown: list[list[Any]] = [
            [best.count((key, value, label)) for (value,), _ in parts] for key in metrics
        ]
        if sum(shown[0] + shown[-1]) >= least:
            over = [[r["nll"] / pooled[r["data"]] - 1 for r in of] for _, of in parts]
            shown.append([f"{100 * fmean(r['harm'] for r in of):.0f}" for _, of in parts])
            shown.append([f"{100 * median(of):.2f}" for of in over])
            lines.append((label, *(" / ".join(map(str, of)) for of in shown)))
    heads = ("method", "lowest ECE", "lowest cwECE", "lowest log loss", "harm, %", "excess, %")
    return markdown(Table("", heads, lines, left=(0,)))


# -- README and the demo -------------------------------------------------------------------------


def demo_lines(columns: Sequence[str], methods: Sequence[str] = ()) -> str:
    """Return the demo's lines as its own table shows them; or of some methods, with privacy."""
    lines = [line_of(row) for row in results("demo").rows]
    table = as_table(lines)
    places = [table.columns.index(column) for column in columns]
    rows = [[plain(entry) for entry in row] for row in table.rows]
    body = [
        [row[j] for j in places]
        for line, row in zip(lines, rows, strict=True)
        if not methods or (row[0] in methods and (line["baseline"] or line["epsilon"] == 1))
    ]
    return markdown(Table("", tuple(columns), body, left=(0,)))


def demo_headline() -> str:
    """Say what one command does."""
    newton = one(results("demo").rows, method="fednewton", epsilon=1.0)
    pooled = one(results("demo").rows, method="pooled-temperature")
    return (
        "**One line of shell, `fedcal simulate --epsilon 1 --out run`, makes this picture: 100 "
        "label-skewed clients calibrate a real network at user-level epsilon = 1.** Its ECE is "
        f"{100 * newton['ece first']:.2f} % (seed 0); over five seeds it is "
        f"{percent(newton)} % and classwise ECE "
        f"{percent(newton, 'classwise_ece')}, with all rows in one place {percent(pooled)} and "
        f"{percent(pooled, 'classwise_ece')}. `make demo` compares all methods."
    )


# -- results -------------------------------------------------------------------------------------

PAGES = {page: [name for name in EXPERIMENTS if name.startswith(page)] for page in PAPERS}
PAGES["maddock"] += ["private-temperature"]
PAGES["own"] = ["five-hospitals", "audit"]
"""Page of docs/results/ -> the experiments whose results it shows."""


def tables(name: str, first: int | None = None) -> str:
    """Return the tables of an experiment, or the first ones, as in `NAME.md`."""
    return "\n".join(map(markdown, results(name).tables[:first]))


def complete(page: str) -> str:
    """Return every claim and table of a page, as Markdown."""
    parts = []
    for name in PAGES[page]:
        claims = "".join(f"* {verdict}\n" for verdict in results(name).verdicts)
        parts.append(f"## `{name}`\n\n{claims}\n{tables(name)}")
    return "\n\n".join(parts)


def claims(page: str) -> str:
    """Return how many claims of a page's experiments hold, and those that do not."""
    lines = []
    for name in PAGES[page]:
        verdicts = results(name).verdicts
        held = sum(v.word == "holds" for v in verdicts)
        lines.append(f"* `{name}`: {held} of {len(verdicts)} claims hold everywhere.")
        lines += [f"  * Not: {v.text}" for v in verdicts if v.word == "does not hold"]
    return "\n".join(lines)


def on_cifar10() -> str:
    """Return the verdicts on claims about grids where the network is the paper's kind, and else."""
    lines = []
    for name in PAGES["maddock"]:
        for verdict in results(name).verdicts:
            places = {**verdict.places}
            if (here := places.pop("cifar10-cnn", None)) is not None:
                words = results(name).experiment.expected[verdict.key]
                others = f"{sum(map(bool, places.values()))} of {len(places)}" if places else ""
                known = words.get("cifar10-cnn", words.get(spec.EVERYWHERE))
                word = spec.WORDS[here] + f"; {spec.SEEDS}" * (known == spec.SEEDS)
                lines.append((verdict.text, word, others, f"`{name}`"))
    heads = ("claim", "on CIFAR-10", "on other networks", "study")
    return markdown(Table("", heads, lines, left=(0, 1, 2, 3)))


# -- items ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Item:
    """A table, figure, method, theorem or claim of a paper: a line of `[items]` of its study file.

    Attributes
    ----------
    what, data
        it is, and is measured on here
    where
        names of studies and methods, tests (`tests/FILE.py::NAME`), files, and names of Python,
        with commas between; may be empty where the verdict says why
    verdict
        "" = how many claims of its studies hold
    claims
        pattern of the keys of those that count
    """

    name: str
    what: str
    where: str
    data: str
    verdict: str
    claims: str = "*"

    @property
    def places(self) -> list[str]:
        """Names in `where`."""
        return [place.strip() for place in self.where.split(",") if place.strip()]

    @property
    def words(self) -> str:
        """Return the verdict, or how many claims of the item's studies hold."""
        if self.verdict:
            return self.verdict
        studies = [name for name in self.places if name in EXPERIMENTS]
        verdicts = [v for name in studies for v in results(name).verdicts]
        words = [v.word for v in verdicts if fnmatchcase(v.key, self.claims)]
        if len(words) < 2:
            return "".join(words)
        return f"{words.count('holds')} of {len(words)} claims hold"

    @property
    def faults(self) -> list[str]:
        """Say which fields are empty that must not be, and which places do not exist."""
        lost = [place for place in self.places if not _exists(place)]
        empty = {"what": self.what, "verdict": self.words, "where": self.where or self.verdict}
        lost += [key for key, value in empty.items() if not value]
        return [f"{self.name}: no {what}" for what in lost]


def _exists(place: str) -> bool:
    path, _, test = place.partition("::")
    if path.partition("[")[0] in {*EXPERIMENTS, *STRATEGIES}:
        return True
    if "/" in path or path.endswith(".md"):
        file = ROOT / path.partition("#")[0]
        return file.is_file() and f"def {test}(" * bool(test) in file.read_text("utf-8")
    try:
        pkgutil.resolve_name(place)
    except (ImportError, AttributeError, ValueError):
        return False
    return True


def items(paper: str) -> list[Item]:
    """Return the items of a paper, in its order."""
    return [Item(name, **line) for name, line in study_file(paper)["items"].items()]


def items_table(paper: str) -> str:
    """Return a paper's items as Markdown."""
    lines = [
        (i.name, i.what, ", ".join(f"`{place}`" for place in i.places) or "-", i.data, i.words)
        for i in items(paper)
    ]
    heads = ("item", "what", "where", "data", "verdict")
    return markdown(Table("", heads, lines, left=(0, 1, 2, 3, 4)))


def all_items() -> str:
    """Return how many items each paper has, and what became of them."""
    counts = []
    for paper in PAPERS:
        found = items(paper)
        here = [i for i in found if i.where]
        claimed = [i for i in here if not i.verdict]
        counts.append((len(found), len(claimed), len(here) - len(claimed), len(found) - len(here)))
    lines = [*zip(PAPERS, counts, strict=True), ("all", map(sum, zip(*counts, strict=True)))]
    heads = ("paper", "items", "claims of studies", "otherwise here", "not here")
    return markdown(Table("", heads, [(name, *map(str, n)) for name, n in lines], left=(0,)))


def all_studies() -> str:
    """Return what each study is about, what it takes, and how many of its claims hold."""
    lines = []
    for name in EXPERIMENTS:
        words = [verdict.word for verdict in results(name).verdicts]
        held = f"{words.count('holds')} of {len(words)}" if words else ""
        took = f"{minutes(name):.1f}" if minutes(name) else ""
        lines.append((f"`{name}`", experiment(name).about, took, held))
    heads = ("study", "about", "processor minutes", "claims that hold")
    return markdown(Table("", heads, lines, left=(0, 1)))


# -- pages ---------------------------------------------------------------------------------------

BLOCKS: Mapping[str, Callable[[], str]] = {
    **{f"{page}-claims": partial(claims, page) for page in PAGES},
    **{f"{paper}-items": partial(items_table, paper) for paper in PAPERS},
    **{f"{name}-command": partial(command, name) for name in COMPARISONS},
    **{name: partial(globals()[of.pop("text")], **of) for name, of in study_file("blocks").items()},
}
"""By the name that a page gives; `text` of a line of `blocks.toml` is a function of this module."""

_BEGIN = re.compile(r"^<!-- generated:", re.M)
_BLOCK = re.compile(r"^<!-- generated: (\S+) -->\n(.*?)^<!-- /generated -->$", re.DOTALL | re.M)


def pages() -> list[Path]:
    """README and the pages under docs."""
    docs = sorted(p for p in (ROOT / "docs").rglob("*.md") if "_build" not in p.parts)
    return [ROOT / "README.md", *docs]


def filled(text: str) -> str:
    """Return a page with its generated blocks made anew.

    Raises
    ------
    InputError
        A block that `BLOCKS` does not have.
    ValueError
        A block that does not end.
    """
    if len(_BLOCK.findall(text)) != len(_BEGIN.findall(text)):
        raise ValueError("a generated block has no end")

    def fill(found: re.Match[str]) -> str:
        name = one_of("block", found[1], BLOCKS)
        return f"<!-- generated: {name} -->\n\n{BLOCKS[name]().strip()}\n\n<!-- /generated -->"

    return _BLOCK.sub(fill, text)


def _commit() -> str:
    """Return the short commit of this code, with a "+" if the code has changed since."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--exclude=*", "--dirty=+"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is named and write its results; then fill the blocks of all pages."""
    parser = argparse.ArgumentParser(description="Write results that ship, and pages about them.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of experiments")
    parser.add_argument("--features", help="file of features, for experiments that need one")
    parser.add_argument("--jobs", type=int, help="processes (the usable cores)")
    given = parser.parse_args(arguments)
    commit = _commit()
    for name in given.names:
        features = given.features if experiment(name).features else None
        result = reproduce(name, jobs=given.jobs, features=features)
        write(name, content(result), commit, result.minutes)
        print(f"written: {name}", flush=True)
    for page in pages():
        old = page.read_text("utf-8")
        new = filled(old)
        if new != old:
            with atomic_file(page) as file:
                file.write(new.encode())
            print(f"written: {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
