"""What becomes of every table, figure, theorem and claim of a paper: `[items]` of its study file.

A line an item, in the order of the paper:

    "Table 2" = { what = "...", where = "maddock-table2", data = "...", verdict = "" }

* `where`: names of studies and methods, tests (`tests/FILE.py::NAME`), files, and names of Python,
  with commas between; it may be empty where the verdict says why;
* `verdict`: "" = how many claims of its studies hold. `claims`, a pattern of their keys, takes
  some of them (all).
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from experiments.studies.expected import shipped
from experiments.studies.run import Reproduction
from experiments.studies.spec import EXPERIMENTS, study_file
from fedcal.core.pages import Table
from fedcal.results.terminal import markdown
from fedcal.strategies import STRATEGIES

ROOT = Path(__file__).resolve().parents[2]
PAPERS = ("maddock", "luo", "zhang", "angelopoulos", "evaluation")

results: Callable[[str], Reproduction] = cache(shipped)
"""The shipped results of an experiment, read once."""


@dataclass(frozen=True)
class Item:
    """A table, figure, method, theorem or claim of a paper: see the module."""

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
    lines = study_file(paper).get("items", {}).items()
    return [Item(name, **line) for name, line in lines]


def items_table(paper: str) -> str:
    """Return a paper's items as Markdown."""
    lines = [
        (i.name, i.what, ", ".join(f"`{place}`" for place in i.places) or "-", i.data, i.words)
        for i in items(paper)
    ]
    return markdown(
        Table("", ("item", "what", "where", "data", "verdict"), lines, left=(0, 1, 2, 3, 4))
    )


def all_items() -> str:
    """Return how many items each paper has, and what became of them."""
    table = []
    for paper in PAPERS:
        found = items(paper)
        claimed = [i for i in found if not i.verdict]
        missing = [i for i in found if not i.where]
        counts = (len(found), len(claimed), len(found) - len(claimed) - len(missing), len(missing))
        table.append((paper, *map(str, counts)))
    total = (sum(int(line[k]) for line in table) for k in range(1, 5))
    heads = ("paper", "items", "claims of studies", "otherwise here", "impossible here")
    return markdown(Table("", heads, [*table, ("all", *map(str, total))], left=(0,)))
