"""What a person sees of a report: rendered by Chromium, on a desk and a telephone, light and dark.

Chromium is driven over its own pipe (no port, no driver package). Without Chromium the tests are
skipped, unless FEDCAL_REQUIRE_BROWSER=1.
"""

import json
import os
import select
import shutil
import signal
import tempfile
import time
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
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe"),
)
SIZES = {"desk": (1280, 900), "telephone": (375, 800)}


class Chromium:
    """A headless Chromium with one page, spoken to over file descriptors 3 and 4."""

    def __init__(self, program: str, profile: Path) -> None:
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        log = os.open(profile / "log.txt", os.O_CREAT | os.O_WRONLY)
        # 3 and 4 must not be overwritten before they are copied
        low, high = (os.dup2(fd, 50 + k) for k, fd in enumerate((to_browser, from_browser)))
        self.pid = os.posix_spawn(
            program,
            [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            os.environ | {"HOME": str(profile)},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, low, 3),
                (os.POSIX_SPAWN_DUP2, high, 4),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
            ],
            setpgroup=0,
        )
        for fd in (to_browser, from_browser, low, high, log):
            os.close(fd)
        self._rest, self._last = b"", 0
        self.session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        while True:
            got = self._receive()
            if got.get("id") == self._last:
                if "error" in got:
                    raise RuntimeError(f"{method}: {got['error']}")
                return dict(got["result"])

    def _receive(self, seconds: float = 60.0) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(end - time.monotonic(), 0))
            data = os.read(self._read, 2**20) if ready else b""
            if not data:
                raise TimeoutError("Chromium does not answer")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if "id" not in message:
            self.events.append(message)
        return message

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def open(self, path: Path, size: tuple[int, int], scheme: str) -> None:
        """Load a file, and wait until it is there."""
        self.resize(*size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media="screen", features=features)
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        while not any(e["method"] == "Page.loadEventFired" for e in self.events):
            self._receive()

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression, or of its promise."""
        how = {"returnByValue": True, "awaitPromise": True}
        done = self.call("Runtime.evaluate", expression=script, **how)
        if "exceptionDetails" in done:
            raise RuntimeError(str(done["exceptionDetails"]))
        return done["result"].get("value")

    def close(self) -> None:
        try:
            os.killpg(self.pid, signal.SIGKILL)
        finally:
            os.waitpid(self.pid, 0)
            os.close(self._write)
            os.close(self._read)


HARD = (600, 5, 2.0)


@pytest.fixture(scope="module")
def chromium():
    program = next((p for p in map(shutil.which, NAMES) if p), None)
    if program is None:
        if os.environ.get("FEDCAL_REQUIRE_BROWSER") == "1":
            pytest.fail("FEDCAL_REQUIRE_BROWSER=1, but there is no Chromium")
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Chromium(program, Path(profile))
        try:
            yield browser
        finally:
            browser.close()


def comparison() -> dict[str, Any]:
    """Eight methods, four budgets and none, three partitions, three baselines."""
    plain: dict[str, Any] = {"baseline": True, "partition": None, "bytes_up": 0}
    names = ("none", "pooled-bbq", "pooled")
    cells = [cell(m, "inf", 0.002 + 0.004 * k, **plain) for k, m in enumerate(names)]
    for partition, k, budget in product(
        ("iid", "dirichlet:0.1", "natural"), range(8), (0.1, 0.5, 1.0, 8.0, "inf")
    ):
        ece = (0.002 + 0.004 * k) * (1 + 1 / float(budget))
        where = {"partition": partition, "bytes_up": 64 * 4**k}
        cells.append(cell(f"method-{k}", budget, ece, **where))
    said = ["Each cell is a run of its own; publishing them all adds their budgets up."]
    return {"schema": 1, "kind": "comparison", "cells": cells, "statement": said, "versions": {}}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Name -> page: runs of 10, 100 and 2 classes, a comparison, notebook cards."""
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
    told = evaluate({**scored, **wards}, by="group", out=out / "evaluation", **options)
    (out / "comparison").mkdir()
    (out / "comparison" / "compare.json").write_text(json.dumps(comparison()), "utf-8")
    write_report(out / "comparison")
    cards = few._repr_html_() + card_of(comparison()["cells"]).html(card=True) + told._repr_html_()
    (out / "cards").mkdir()
    head = '<!doctype html><meta name="viewport" content="width=device-width">'
    head += '<link rel="icon" href="data:,"><meta charset="utf-8">'
    (out / "cards" / "report.html").write_text(head + cards, "utf-8")
    return {folder.name: folder / "report.html" for folder in out.iterdir()}


PAGES = ("ten", "hundred", "two", "comparison", "evaluation")


@pytest.fixture
def look(chromium, pages):
    def open_page(page: str, size: str, scheme: str) -> Chromium:
        chromium.open(pages[page], SIZES[size], scheme)
        return chromium

    return open_page


LOOKS = (("desk", "light"), ("telephone", "dark"))


@pytest.mark.slow
@pytest.mark.parametrize(("size", "scheme"), LOOKS)
@pytest.mark.parametrize("page", PAGES)
def test_everything_can_be_read(look, page, size, scheme):
    browser, width = look(page, size, scheme), SIZES[size][0]
    assert browser.run("document.querySelector('h1').innerText").count(". ") < 3
    assert browser.run("document.documentElement.scrollWidth") <= width  # nothing to the side
    browser.run(Path(axe_core_python.__file__).with_name("axe.min.js").read_text("utf-8"))
    found = browser.run("axe.run().then(r => r.violations.map(v => [v.id, v.nodes[0].html]))")
    assert found == []


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_it_works_offline_without_a_complaint_and_fits_on_paper(look, page):
    browser = look(page, "desk", "light")
    browser.run("document.body.innerText.length")
    asked = [
        e["params"]["request"]["url"]
        for e in browser.events
        if e["method"] == "Network.requestWillBeSent"
    ]
    assert [url.partition(":")[0] for url in asked if not url.startswith("data:")] == ["file"]
    noise = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
    assert [e for e in browser.events if e["method"] in noise] == []
    assert browser.run("document.scripts.length") == 0
    browser.resize(680, 1000)  # of A4 between its margins, in CSS pixels
    browser.call("Emulation.setEmulatedMedia", media="print", features=[])
    assert browser.run("document.documentElement.scrollWidth") <= 680


@pytest.mark.slow
def test_a_comparison_s_table_scrolls_by_itself_and_cards_of_a_notebook_fit(look):
    browser = look("comparison", "telephone", "light")
    box = "document.querySelector('.wide')"
    assert browser.run(f"{box}.scrollWidth > {box}.clientWidth")
    assert browser.run(f"{box}.tabIndex") == 0  # by keyboard, too
    assert browser.run("document.querySelectorAll('svg.panel').length") == 3 * 4 + 5 * 3
    for size, (width, _) in SIZES.items():
        look("cards", size, "light")
        assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.run("document.querySelectorAll('svg.panel').length") == 2 + 8
