"""Text about results in README and docs, made from the results that ship.

A block of a page is what stands between two lines of its own,

    <!-- generated: NAME -->
    <!-- /generated -->

and is what `texts.BLOCKS[NAME]()` gives. `python -m fedcal.experiments.research.studies.documents`
fills all of them anew, and a test compares: so no page contradicts the data. A sentence that quotes
a result belongs into a block, with the number computed there, or has no number. To add one: write
its macro in `texts.md.j2` (one with parameters is named in `BLOCKS`), and put the two lines where
it is to stand.
"""

from __future__ import annotations

import re
from pathlib import Path

from fedcal.core.checks import one_of
from fedcal.experiments.research.studies.expected import ROOT
from fedcal.experiments.research.studies.texts import BLOCKS
from fedcal.storage.atomic import whole_file

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
