"""What Flower's own SecAgg+ costs one client: bytes and CPU time of its four stages.

The client's side is driven without a network, stage by stage, by the functions of Flower's mod; the
other clients only where one needs their keys and shares. Bytes are those of the values in messages:
keys, sealed shares, node ids of 8 bytes, and the masked vector as Flower writes it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fedcal.experiments.research.benchmarks.harness import Benchmark
from fedcal.experiments.runs.sweep import Row
from fedcal.secure_aggregation.masking import SPARSE_DEGREE

SIZES = ((10, 9), (100, 99), (1000, SPARSE_DEGREE))
"""(clients, neighbours of each)."""

NUMBERS = (5_000, 100_000)
_ID = 8  # bytes of a node's id


def rows(quick: bool = False) -> Iterator[Row]:
    """One row for each size; quick: the smallest."""
    for clients, neighbours in SIZES[: 1 if quick else None]:
        for numbers in NUMBERS[: 1 if quick else None]:
            yield one(clients, neighbours, numbers)


def one(clients: int, neighbours: int, numbers: int) -> Row:
    """Time a client among neighbours that all answer; two thirds of the shares open a seed."""
    import importlib

    from flwr.app import ConfigRecord

    mod: Any = importlib.import_module("flwr.client.mod.secure_aggregation.secaggplus_mod")
    from flwr.common import ndarrays_to_parameters
    from flwr.common.secure_aggregation.secaggplus_constants import Key

    setup: dict[str, Any] = {
        Key.SAMPLE_NUMBER: clients,
        Key.SHARE_NUMBER: neighbours + 1,
        Key.THRESHOLD: max(2, 2 * (neighbours + 1) // 3),
        Key.CLIPPING_RANGE: 8.0,
        Key.TARGET_RANGE: 1 << 22,
        Key.MOD_RANGE: 1 << 32,
        Key.MAX_WEIGHT: 1000.0,
    }
    states = [mod.SecAggPlusState() for _ in range(neighbours + 1)]
    public, took = dict[str, Any](), list[float]()

    def stage(work: Callable[..., Any], *given: Any) -> Any:
        """Run a stage for the first client, whose time counts."""
        begun = time.process_time()
        done = work(states[0], *given)
        took.append(time.process_time() - begun)
        return done

    for node, state in enumerate(states):
        state.nid = node
        asked = ConfigRecord(setup)
        keys = mod._setup(state, asked) if node else stage(mod._setup, asked)
        public[str(node)] = [keys[Key.PUBLIC_KEY_1], keys[Key.PUBLIC_KEY_2]]
        if node == 0:
            up = _bytes(keys)
    shared = stage(mod._share_keys, ConfigRecord(public))
    sealed = _shares_for(states)
    vector = ndarrays_to_parameters([np.random.default_rng(0).normal(size=numbers)])
    masked = stage(mod._collect_masked_vectors, ConfigRecord(sealed), 1, vector)
    alive: dict[str, Any] = {
        Key.ACTIVE_NODE_ID_LIST: list(range(neighbours + 1)),
        Key.DEAD_NODE_ID_LIST: [],
    }
    opened = stage(mod._unmask, ConfigRecord(alive))
    up += sum(map(_bytes, (shared, masked, opened)))
    down = sum(map(_bytes, (public, sealed, alive))) + _ID * len(public)
    return {
        "clients": clients,
        "neighbours": neighbours,
        "numbers": numbers,
        "up, bytes": up,
        "down, bytes": down,
        "vector alone, bytes": _bytes(masked),
        "CPU of a client, s": round(sum(took), 4),
    }


def _shares_for(states: list[Any]) -> dict[str, Any]:
    """Return the shares of their own seeds that the neighbours seal for the first client."""
    from flwr.common.secure_aggregation.crypto.symmetric_encryption import encrypt
    from flwr.common.secure_aggregation.secaggplus_constants import Key
    from flwr.common.secure_aggregation.secaggplus_utils import share_keys_plaintext_concat

    first = states[0]
    length = len(first.rd_seed_share_dict[0]), len(first.sk1_share_dict[0])
    sealed = []
    for node in range(1, len(states)):
        plain = share_keys_plaintext_concat(node, 0, *(os.urandom(n) for n in length))
        sealed.append(encrypt(first.ss2_dict[node], plain))
    return {Key.SOURCE_LIST: list(range(1, len(states))), Key.CIPHERTEXT_LIST: sealed}


def _bytes(values: Any) -> int:
    """Bytes of the values of a record: of byte strings their length, of numbers 8."""
    if isinstance(values, bytes):
        return len(values)
    if isinstance(values, dict):
        values = list(values.values())
    return sum(map(_bytes, values)) if isinstance(values, list) else _ID


BENCHMARK = Benchmark("Flower's own SecAgg+: bytes and CPU time of a client", rows)
