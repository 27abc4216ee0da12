"""A study of three sites that asks for a calibrator: what goes wrong, and what becomes of it."""

import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from procfs import descendants
from town import PATIENCE, Town

from fedcal import calibrators
from fedcal.strategies.server.checkpoint import read_progress

pytestmark = pytest.mark.slow

SITES = ("alder", "birch", "cedar")
RUN = "fedcal study run sepsis.toml {}"


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    with Town(tmp_path_factory.mktemp("town"), SITES) as town:
        rng = np.random.default_rng(5)
        for site in SITES:
            z = rng.normal(-1.0, 1.5, 700)
            y = rng.random(700) < 1 / (1 + np.exp(-z))
            p = 1 / (1 + np.exp(-1.8 * z))
            rows = enumerate(zip(p, y, strict=True))
            lines = [f"{k},{score:.6f},{int(own)}" for k, (score, own) in rows]
            (town.folder / f"{site}.csv").write_text("subject,score,label\n" + "\n".join(lines))
        town.agree("--method fednewton --per-year 5 --epsilon 20")
        yield town


def after_round(town: Town, number: int, name: str) -> None:
    work = town.folder / "sepsis-server" / "runs" / name / "server"
    deadline = time.monotonic() + PATIENCE
    while len(read_progress(work)) < number:
        assert town.running["coordinator"].poll() is None, town.logs()
        assert time.monotonic() < deadline, town.logs()
        time.sleep(0.1)


def test_a_release_is_booked_once_and_gives_a_calibrator(town):
    town.call(RUN.format("first"))
    record = town.record("first", "result.json")
    assert (record["privacy"]["trust"], record["privacy"]["noise_source"]) == (
        "distributed",
        "system",
    )
    found = calibrators.load(town.folder / "first" / "calibrator.npz")
    assert 1.2 < found.temperature < 2.8  # 1.8, and noise of epsilon 4
    for site in SITES:
        (job,) = town.spent(site)
        assert job == {"epsilon": 4.0, "answered": (1, 2, 3, 4), "closed": "finished"}
    assert town.charged() == [(1, 2, 3, 4)]
    assert "are those of the terms" in town.call("fedcal study verify first --sealed sepsis.sealed")
    status = json.loads(town.call("fedcal study status sepsis.toml --json"))
    assert [*status["releases"]] == ["first"]
    assert {one["connected"] for one in status["sites"].values()} == {"yes"}
    changed = town.folder / "first" / "result.json"
    text = changed.read_text()
    changed.write_text(text.replace('"epsilon": 4.0', '"epsilon": 1.0'))
    assert "hash" in town.call("fedcal study verify first --sealed sepsis.sealed", 2)
    changed.write_text(text)


def test_a_site_that_is_killed_in_mid_round_comes_back(town):
    town.begin("coordinator", RUN.format("killed"))
    after_round(town, 1, "killed")
    seen = len(town.log("cedar"))
    for process in descendants(town.running["cedar"].pid):
        if b"flower-supernode" in Path(f"/proc/{process}/cmdline").read_bytes():
            os.kill(process, signal.SIGKILL)
    assert town.running.pop("coordinator").wait(2 * PATIENCE) == 0, town.logs()
    assert town.charged()[-1] == (1, 2, 3, 4)
    town.until("cedar", "waiting for questions", seen)


def test_after_longer_the_release_is_gone_on_with_and_charged_once(town):
    town.begin("coordinator", RUN.format("long"))
    after_round(town, 2, "long")
    work = town.folder / "sepsis-server" / "runs" / "long" / "server"
    kept = json.loads((work / "checkpoint.json").read_text())
    town.end("serve", signal.SIGKILL)
    town.end("coordinator", signal.SIGINT)  # the command alone
    town.serve()
    town.call(RUN.format("long"))
    assert town.charged()[-1] == (1, 2, 3, 4)
    rounds = (town.folder / "long" / "rounds.jsonl").read_text().splitlines()
    assert len(rounds) == 4
    for before, after in zip(kept["releases"], map(json.loads, rounds), strict=False):
        assert before["values"] == after["values"]  # what was released stays what it was
    for site in SITES:
        assert town.spent(site)[-1]["answered"] == (1, 2, 3, 4)
