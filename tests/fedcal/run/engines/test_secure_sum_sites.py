"""The protocol of secure aggregation through a real SuperLink: inline's bits, also when sites die.

Five sites with the committee (5, 4): one may be away. It is killed at each step of a round, as a
machine that loses its power.
"""

import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedcal.core.shards import Shards
from fedcal.privacy.privacy import Federation
from fedcal.run.engines.grpc import run_grpc
from fedcal.run.engines.inline import run_inline
from fedcal.run.engines.supernode import SuperNode
from fedcal.strategies.server.job import Job
from fedcal.strategies.server.outcome import Outcome

pytestmark = pytest.mark.slow

SITES, ROWS, CLASSES, LAST = 5, 40, 3, 4
STEPS = {"before it answers": "asked which", "answered": "answered:", "confirmed": "confirmed:"}
"""When the last site dies -> what its log has said just before."""


def shards() -> Shards:
    rng = np.random.Generator(np.random.Philox(key=5))
    labels = rng.integers(0, CLASSES, SITES * ROWS)
    logits = 3 * (rng.normal(size=(SITES * ROWS, CLASSES)) + np.eye(CLASSES)[labels])
    return Shards(logits, labels, ROWS * np.arange(SITES + 1), "logits")


def job(**facts: float | str) -> Job:
    federation = Federation(
        SITES, CLASSES, quorum=0.8, committee=5, threshold=4, colluding=2, **facts
    )
    return Job("fedbin", federation, secure_aggregation="protocol", timeout=40.0)


def inline(of: Job, away: tuple[int, ...] = ()) -> Outcome:
    def drop(number: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array(away, np.int64)

    return of.run(lambda strategy: run_inline(strategy, shards(), unavailable=drop))


def killing(said: str) -> tuple[list[SuperNode], Callable[[], bool]]:
    """Nodes, of which the last one is killed once its log says something; and whether it was."""
    nodes, done = list[SuperNode](), threading.Event()

    def watch() -> None:
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            if len(nodes) == SITES:
                log: Path = nodes[LAST].folder / "site.log"
                if log.exists() and said in log.read_text("utf-8"):
                    nodes[LAST].kill()
                    done.set()
                    return
            time.sleep(0.005)

    threading.Thread(target=watch, daemon=True).start()
    return nodes, done.is_set


@pytest.mark.parametrize("step", STEPS)
def test_a_site_that_dies_at_any_step_moves_no_bit_of_the_others(step):
    """The sum is that of the signed contributions: with its own where it had answered."""
    nodes, killed = killing(STEPS[step])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = run_grpc(job(), shards(), nodes=nodes)
    assert killed()
    with_it, without = inline(job()).records, inline(job(), away=(LAST,)).records
    # it dies as it answers: the message may be out or not
    possible = {"before it answers": [without], "answered": [with_it, without]}
    assert found.records in possible.get(step, [with_it])


def test_noise_in_shares_through_a_real_superlink_has_the_bits_of_inline():
    of = job(epsilon=4.0, trust="distributed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = run_grpc(of, shards())
    assert found.records == inline(of).records
