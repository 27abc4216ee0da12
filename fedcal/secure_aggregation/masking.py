"""Masks of a simulated secure aggregation: each client adds one, the server takes their sum off.

**This is a simulation.** Masks follow from the run's seed, so that a run repeats bit for bit;
whoever has that seed, as the server does, can remove every mask. To anyone else a masked vector is
uniform. `roster` and `messages` have the protocol in which nobody could remove one. A sum over one
client hides nothing; the exact sum is not private by itself, and noise is the business of the trust
model.
"""

import hashlib
from collections.abc import Iterable

from fedcal.core.numerics import Words
from fedcal.secure_aggregation.roster import hidden, stream


def mask(client: int, run_seed: int, round: int, length: int) -> Words:
    """Return the mask that a client adds to its contribution in a round, (length,)."""
    return stream(_seed(client, run_seed, round), length)


def unmask(total: Words, answered: Iterable[int], run_seed: int, round: int) -> Words:
    """Return the sum of the vectors of those who answered, from the sum of their masked vectors."""
    return hidden(total, [_seed(client, run_seed, round) for client in answered])


def _seed(client: int, run_seed: int, round: int) -> bytes:
    return hashlib.sha256(f"fedcal/masking/2 {run_seed} {round} {client}".encode()).digest()
