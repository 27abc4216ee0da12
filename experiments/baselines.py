"""What is fitted without a federation: on nothing, on one client's rows, on all of them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from fedcal.calibrators import BBQ, Calibrator, Identity, TemperatureScaling
from fedcal.experiments.statement import without_privacy
from fedcal.shards import Shards
from fedcal.strategies.outcome import Outcome
from fedcal.streams import Purpose, stream
from fedcal.trust import SecAgg

_CALIBRATORS: dict[str, type[Calibrator]] = {
    "none": Identity,
    "one-source": TemperatureScaling,
    "pooled-temperature": TemperatureScaling,
    "pooled-bbq": BBQ,
}
_TOGETHER = ("pooled", "All rows were pooled in one place: no federation and no privacy.")
_ALONE = {
    "none": (SecAgg.name, "Nothing was learned from anybody."),
    "one-source": (
        "one-source",
        "One client fitted a temperature to its own rows, for itself: no federation, and nothing "
        "that was sent to anybody.",
    ),
}


def rows_of(method: str, shards: Shards, seed: int) -> Shards:
    """What a baseline reads: "one source" of Luo et al., 5.1, a client with rows drawn by seed."""
    if method != "one-source":
        return shards
    some = np.flatnonzero(shards.rows)
    drawn = int(stream(seed, Purpose.SAMPLING, 0, "one source").integers(len(some)))
    return shards.take(some[drawn : drawn + 1])


def fit_baseline(
    method: str, shards: Shards, unit: str, *, tested: bool = True
) -> tuple[Outcome, dict[str, Any]]:
    """What came of it, and the record of its privacy, which is none.

    Parameters
    ----------
    method : str
        One of `POOLED`.
    shards : Shards
        The rows that it reads, see `rows_of`.
    unit : str
        What the record says of the unit of privacy.
    tested : bool
        Whether test rows are judged afterwards.
    """
    start = time.perf_counter()
    calibrator = _CALIBRATORS[method]().fit(shards.logits, shards.labels)
    seconds = time.perf_counter() - start
    calibrator.learnt_on(shards.input)
    trust, words = _ALONE.get(method, _TOGETHER)
    privacy = without_privacy(trust, unit, words, tested=tested)
    return Outcome(calibrator, [], [], 0, 0, seconds, []), privacy
