"""What a person sees of a report: rendered by Chromium, on a desk, a telephone and paper.

Each page stands in a frame of that width, in which axe looks at it. Without Chromium the tests are
skipped, unless FEDCAL_REQUIRE_BROWSER=1.
"""

import html
import json
import os
import re
import shutil
import subprocess
from itertools import product
from pathlib import Path
from typing import Any

import axe_core_python
import numpy as np
import pytest
from compared import cell
from made_up import halves

from fedcal import evaluate, simulate
from fedcal.results.comparison import card_of
from fedcal.run.folders import write_report

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--virtual-time-budget=600000", "--window-size=1400,1000", "--dump-dom"),
)
DARK, PRINT = "@media screen and (prefers-color-scheme: dark)", "@media print"
LOOKS = {"desk": (1280, ""), "telephone": (375, DARK), "paper": (680, PRINT)}
"""Width, of paper that of A4 between its margins, and the style that holds there."""
AXE = """<script>%s</script><script>addEventListener("load", async () => {
  const found = await axe.run(), root = document.documentElement;
  parent.found["%s"] = {
    bad: found.violations.map(v => [v.id, v.nodes[0].html]), wide: root.scrollWidth};
  parent.document.title = JSON.stringify(parent.found);
});</script>"""
HARD = (600, 5, 2.0)


def comparison() -> dict[str, Any]:
    """Return a comparison of eight methods, four budgets and none, three partitions."""
    cells = [cell("none", "inf", 0.002, baseline=True, partition=None, bytes_up=0)]
    for partition, k, budget in product(
        ("iid", "dirichlet:0.1", "natural"), range(8), (0.1, 0.5, 1.0, 8.0, "inf")
    ):
        ece = (0.002 + 0.004 * k) * (1 + 1 / float(budget))
        where = {"partition": partition, "bytes_up": 64 * 4**k}
        cells.append(cell(f"method-{k}", budget, ece, **where))
    output = ["Each cell is a run of its own; publishing them all adds their budgets up."]
    return {"schema": 1, "kind": "comparison", "cells": cells, "statement": output, "versions": {}}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Name -> page: runs of 10, 100 and 2 classes, a comparison, an evaluation, notebook cards."""
    out = tmp_path_factory.mktemp("pages")
    few = simulate(halves(10, *HARD), method="fednewton", clients=30, epsilon=1.0, out=out / "ten")
    simulate(
        halves(100, *HARD), method="fedtemp", clients=30, sampling_rate=0.5, out=out / "hundred"
    )
    pooled = {"method": "pooled-bbq", "clients": 30}
    simulate(halves(2, *HARD), **pooled, out=out / "two")
    wards = {"group": np.where(np.arange(600) % 7 == 0, "a ward with a long name", "ward b")}
    scored = {k: v for k, v in halves(2, *HARD).items() if "test" not in k}
    options = {"epsilon": 2.0, "unit": "example", "partition": "iid", "clients": 5}
    shown = evaluate({**scored, **wards}, by="group", out=out / "evaluation", **options)
    (out / "comparison").mkdir()
    (out / "comparison" / "compare.json").write_text(json.dumps(comparison()), "utf-8")
    write_report(out / "comparison")
    cards = few._repr_html_() + card_of(comparison()["cells"]).html(card=True) + shown._repr_html_()
    (out / "cards").mkdir()
    head = '<!doctype html><meta name="viewport" content="width=device-width">'
    head += '<link rel="icon" href="data:,"><meta charset="utf-8">'
    (out / "cards" / "report.html").write_text(head + cards, "utf-8")
    return {folder.name: (folder / "report.html").read_text("utf-8") for folder in out.iterdir()}


def framed(text: str, name: str, width: int, style: str) -> str:
    """Return a page in a frame, with a script that its own policy would refuse."""
    text = re.sub(r"<meta[^>]*Content-Security-Policy[^>]*>", "", text)
    if style and not name.startswith("cards"):
        assert style in text
        text = text.replace(style, "@media all")
    axe = Path(axe_core_python.__file__).with_name("axe.min.js").read_text("utf-8")
    source = html.escape(text + AXE % (axe, name))
    return f'<iframe title="{name}" width="{width}" height="800" srcdoc="{source}"></iframe>'


@pytest.fixture(scope="module")
def seen(pages, tmp_path_factory):
    """(page, look) -> what was found there."""
    program = next((p for p in map(shutil.which, NAMES) if p), None)
    if program is None:
        if os.environ.get("FEDCAL_REQUIRE_BROWSER") == "1":
            pytest.fail("FEDCAL_REQUIRE_BROWSER=1, but there is no Chromium")
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed")
    folder = tmp_path_factory.mktemp("browser")
    frames = [
        framed(text, f"{page} {look}", *LOOKS[look])
        for (page, text), look in product(pages.items(), LOOKS)
    ]
    head = '<!doctype html><meta charset="utf-8"><title></title><script>var found = {}</script>'
    (folder / "all.html").write_text(head + "".join(frames), "utf-8")
    done = subprocess.run(
        [program, *FLAGS, f"--user-data-dir={folder}", (folder / "all.html").as_uri()],
        env=os.environ | {"HOME": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    (title,) = re.findall(r"<title>(.*?)</title>", done.stdout, re.DOTALL)[:1]
    found = json.loads(html.unescape(title))
    assert len(found) == len(frames), done.stderr[-2000:]
    return {tuple(name.split()): one for name, one in found.items()}


@pytest.mark.slow
def test_everything_can_be_read(seen):
    for (page, look), found in seen.items():
        assert found["wide"] <= LOOKS[look][0], (page, look)  # nothing to the side
        assert page == "cards" or found["bad"] == [], (page, look)
