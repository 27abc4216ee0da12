"""Held-out rows that do not depend on other rows: a split that composes in parallel."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcal.core.errors import InputError


def held_out(ids: ArrayLike, key: int | str, share: float) -> NDArray[np.bool_]:
    """Return whether each row is held out, by a keyed hash of its id.

    A row's part follows from its id and the key alone. So adding or removing a row changes one of
    the two parts, and a release from each costs the larger of their budgets, not the sum: this is
    what Zhang et al. (2022), Proposition A.1, require of the split of their Algorithm 1. A
    permutation of fixed size does not ensure it, since it moves other rows, too. The number of rows
    in each part is then as private as the rows are: rates and denominators need public nominal
    sizes.

    Parameters
    ----------
    ids
        (n,) whole numbers or texts: ids of rows for the unit of privacy `example`; ids of users or
        subjects for theirs, so that all rows of one are in the same part. An id must not depend on
        other rows: a position in a list from which rows may be removed is not an id
    key
        fixed before the rows are looked at. Another key draws another split
    share
        probability that an id is held out, in (0, 1)

    Returns
    -------
    NDArray[np.bool_]
        (n,)

    Raises
    ------
    InputError
        Other ids, or a share outside (0, 1).
    """
    array = np.asarray(ids)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iuU"):
        raise InputError(
            f"ids must be (n,) whole numbers or texts, got {array.shape} of {array.dtype}"
        )
    if not 0 < share < 1:
        raise InputError(f"share must be in (0, 1), got {share!r}")
    unique, place = np.unique(array, return_inverse=True)
    secret = hashlib.blake2b(f"fedcal holdout {key}".encode(), digest_size=32).digest()
    digests = b"".join(
        hashlib.blake2b(str(entry).encode(), key=secret, digest_size=8).digest()
        for entry in unique.tolist()
    )
    drawn = np.frombuffer(digests, "<u8") < np.uint64(share * 2.0**64)
    return np.asarray(drawn[place], np.bool_)
