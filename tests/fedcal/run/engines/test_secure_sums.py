"""Secure sums over a real SuperLink: sites that die, noise in shares; half a minute each."""

import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from made_up import halves

from fedcal.core.numerics import Integers
from fedcal.core.shards import Shards
from fedcal.privacy.privacy import Federation
from fedcal.run.engines.grpc import run_grpc
from fedcal.run.engines.inline import run_inline
from fedcal.run.engines.supernode import SuperNode
from fedcal.strategies.server.job import Job
from fedcal.strategies.server.outcome import Outcome

pytestmark = pytest.mark.slow

SITES, LAST, CLASSES = 5, 4, 3
STEPS = {"before it answers": "asked which", "answered": "answered:", "confirmed": "confirmed:"}
"""When the last site dies -> what its log has said just before."""


def shards() -> Shards:
    rows = halves(CLASSES, 240, 5, 1.0)
    return Shards(rows["logits"], rows["labels"], 48 * np.arange(SITES + 1), "logits")


def secure_job(**facts: float | str) -> Job:
    """Five sites, all in the committee, of whom one may be away."""
    agreed = {"quorum": 0.8, "committee": 5, "threshold": 4, "colluding": 2}
    federation = Federation(SITES, CLASSES, **agreed, **facts)
    return Job("fedbin", federation, secure_aggregation="protocol", timeout=40.0)


def inline(job: Job, away: tuple[int, ...] = ()) -> Outcome:
    def drop(number: int) -> Integers:
        return np.array(away, np.int64)

    return job.run(lambda strategy: run_inline(strategy, shards(), unavailable=drop))


def killing(words: str) -> tuple[list[SuperNode], Callable[[], bool]]:
    """Nodes, of which the last one is killed once its log holds these words; whether it was."""
    nodes, done = list[SuperNode](), threading.Event()

    def watch() -> None:
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            if len(nodes) == SITES:
                log: Path = nodes[LAST].folder / "site.log"
                if log.exists() and words in log.read_text("utf-8"):
                    nodes[LAST].kill()
                    done.set()
                    return
            time.sleep(0.005)

    threading.Thread(target=watch, daemon=True).start()
    return nodes, done.is_set


@pytest.mark.parametrize("step", STEPS)
def test_a_site_that_dies_at_any_step_of_a_secure_sum_moves_no_bit_of_the_others(step):
    """The sum is that of the signed contributions: with its own where it had answered."""
    nodes, killed = killing(STEPS[step])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = run_grpc(secure_job(), shards(), nodes=nodes)
    assert killed()
    with_it, without = (inline(secure_job(), away).records for away in ((), (LAST,)))
    # it dies as it answers: the message may be out or not
    possible = {"before it answers": [without], "answered": [with_it, without]}
    assert found.records in possible.get(step, [with_it])


def test_noise_in_shares_through_a_real_superlink_has_the_bits_of_inline():
    job = secure_job(epsilon=4.0, trust="distributed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = run_grpc(job, shards())
    assert found.records == inline(job).records
