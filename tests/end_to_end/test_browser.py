"""What a person sees of a report: rendered by Chromium, on a desk, a telephone and paper.

Each page stands in a frame of that width, in which axe looks at it.
"""

import html
import json
import os
import re
import shutil
import subprocess
from itertools import product
from pathlib import Path

import axe_core_python
import numpy as np
import pytest
from made_up import halves

from fedcal import compare, evaluate, simulate

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or ""
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


def pages(out: Path) -> dict[str, str]:
    """Return pages by name: runs of 10 and 100 classes, a comparison, an evaluation, cards."""
    few = simulate(halves(10, *HARD), method="fednewton", clients=30, epsilon=1.0, out=out / "ten")
    simulate(halves(100, *HARD), method="pooled-bbq", clients=30, out=out / "hundred")
    wards = {"group": np.where(np.arange(600) % 7 == 0, "a ward with a long name", "ward b")}
    scored = {k: v for k, v in halves(2, *HARD).items() if "test" not in k}
    options = {"epsilon": 2.0, "unit": "example", "partition": "iid", "clients": 5}
    shown = evaluate({**scored, **wards}, by="group", out=out / "evaluation", **options)
    methods = ["fedtemp", "fednewton", "fedbin", "acct", "fedoneshot"]
    grid = {"method": methods, "epsilon": "inf,8,1,0.5", "partition": "iid,dirichlet:0.1"}
    each = compare("heart-disease", **grid, clients=20, jobs=1, out=out / "comparison")
    found = {f.name: (f / "report.html").read_text("utf-8") for f in out.iterdir()}
    head = '<!doctype html><meta name="viewport" content="width=device-width">'
    cards = "".join(one._repr_html_() for one in (few, each, shown))
    return found | {"cards": f'{head}<meta charset="utf-8">{cards}'}


def framed(text: str, name: str, width: int, style: str) -> str:
    """Return a page in a frame, with a script that its own policy would refuse."""
    text = re.sub(r"<meta[^>]*Content-Security-Policy[^>]*>", "", text)
    if style and not name.startswith("cards"):
        assert style in text
        text = text.replace(style, "@media all")
    axe = Path(axe_core_python.__file__).with_name("axe.min.js").read_text("utf-8")
    source = html.escape(text + AXE % (axe, name))
    return f'<iframe title="{name}" width="{width}" height="800" srcdoc="{source}"></iframe>'


@pytest.mark.slow
@pytest.mark.skipif(not CHROMIUM, reason="no browser")
def test_everything_can_be_read(tmp_path):
    (tmp_path / "pages").mkdir()
    each = product(pages(tmp_path / "pages").items(), LOOKS)
    frames = [framed(text, f"{page} {look}", *LOOKS[look]) for (page, text), look in each]
    head = '<!doctype html><meta charset="utf-8"><title></title><script>var found = {}</script>'
    (tmp_path / "all.html").write_text(head + "".join(frames), "utf-8")
    done = subprocess.run(
        [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path}", (tmp_path / "all.html").as_uri()],
        env=os.environ | {"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    (title,) = re.findall(r"<title>(.*?)</title>", done.stdout, re.DOTALL)[:1]
    found = json.loads(html.unescape(title))
    assert len(found) == len(frames), done.stderr[-2000:]
    for name, one in found.items():
        page, look = name.split()
        assert one["wide"] <= LOOKS[look][0], name  # nothing to the side
        assert page == "cards" or one["bad"] == [], name
