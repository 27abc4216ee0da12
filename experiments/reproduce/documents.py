"""Text about results in README and docs, made from the results that ship.

A block of a page is what stands between two lines of its own,

    <!-- generated: NAME -->
    <!-- /generated -->

and is what `BLOCKS[NAME]()` gives. `python -m fedcal.experiments.reproduce.documents` fills all of
them anew, and a test compares: so no page contradicts the data. A sentence that quotes a result
belongs into a block, with the number computed there, or has no number. To add one: write its
function, name it in `BLOCKS`, and put the two lines where it is to stand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from fedcal.atomic import whole_file
from fedcal.checks import one_of
from fedcal.experiments.reproduce import texts
from fedcal.experiments.reproduce.check import unsure
from fedcal.experiments.reproduce.claims import Verdict
from fedcal.experiments.reproduce.expected import FOLDER, ROOT, read
from fedcal.experiments.reproduce.registry import EXPERIMENTS, experiment
from fedcal.experiments.reproduce.texts import results
from fedcal.experiments.show.tables import markdown

NAMES = tuple(name for name in EXPERIMENTS if (FOLDER / f"{name}.json").is_file())

_BEGIN = re.compile(r"^<!-- generated:", re.M)
_BLOCK = re.compile(r"^<!-- generated: (\S+) -->\n(.*?)^<!-- /generated -->$", re.DOTALL | re.M)


def tables(name: str) -> str:
    """The tables of an experiment, as `NAME.md` has them."""
    return "\n".join(map(markdown, results(name).blocks))


def claims(name: str) -> str:
    """Each claim of an experiment, in the paper's own numbers and here."""
    found = experiment(name)
    lines = [
        f"| {_sentence(v)} | {v.printed or 'not printed'} "
        f"| **{v.word}** {v.said}{_doubt(unsure(found, v), len(v.places))} |"
        for v in results(name).verdicts
    ]
    return "\n".join(["| claim | the paper's own numbers | here |", "|---|---|---|", *lines])


def _doubt(places: Sequence[str], of: int) -> str:
    """Where a verdict is about means that lie within their spread."""
    where = "everywhere" if len(places) == of else f"on {', '.join(places)}"
    return f" (depends on seeds {where})" if places else ""


def _sentence(verdict: Verdict) -> str:
    return f"{verdict.text} ({verdict.where})" if verdict.where else verdict.text


def made_by(*names: str) -> str:
    """Which commit made the numbers of these experiments."""
    by_commit: dict[str, list[str]] = {}
    for name in names:
        by_commit.setdefault(str(read(name)["commit"]), []).append(f"`{name}`")
    if len(by_commit) == 1:
        return f"The numbers of results on this page were made by commit {min(by_commit)}."
    said = "; ".join(f"{', '.join(mine)} by {commit}" for commit, mine in by_commit.items())
    return f"Which commit made the numbers on this page: {said}."


_SHOWN = {
    "reproduce": (*texts.TABLES, "private-temperature", "fedtemp-bound"),
    "demo": ("demo", *texts.TABLES, "private-temperature", "luo-table1", "luo-table7"),
    "trust-models": ("trust-models",),
    "audit": ("audit",),
    "luo": ("luo-table1", "luo-table7", "luo-figures"),
    "choosing": ("choosing-clients", "choosing-searches", "choosing-trust", "binning-pays"),
    "amplification": ("amplification", "maddock-table6", "maddock-table7"),
}
"""Page -> what it shows."""

BLOCKS: Mapping[str, Callable[[], str]] = {
    **{name: partial(tables, name) for name in NAMES},
    **{f"{name}-claims": partial(claims, name) for name in NAMES},
    **{f"made-by-{page}": partial(made_by, *names) for page, names in _SHOWN.items()},
    **texts.BLOCKS,
}
"""By the name that a page gives."""


def pages() -> list[Path]:
    """README and the pages under docs."""
    docs = sorted(p for p in (ROOT / "docs").rglob("*.md") if "_build" not in p.parts)
    return [ROOT / "README.md", *docs]


def filled(text: str) -> str:
    """A page with its blocks made anew.

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


def main() -> None:
    """Fill the blocks of all pages."""
    for page in pages():
        old = page.read_text("utf-8")
        new = filled(old)
        if new != old:
            with whole_file(page) as file:
                file.write(new.encode())
            print(f"written: {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
