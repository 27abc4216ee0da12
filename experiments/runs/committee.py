"""The committee of a run's secure sums, as its options say, or by default."""

from __future__ import annotations

import math
import re

from fedcal.core.errors import InputError
from fedcal.secure_aggregation.committee import (
    EVERYBODY_UP_TO,
    check_committee,
    colluding,
    default_threshold,
)
from fedcal.secure_aggregation.roster import Roster
from fedcal.storage.atomic import path_of


def read_committee(text: str) -> tuple[int, int]:
    """Members and threshold of "C,T"; InputError for anything else."""
    if not (found := re.fullmatch(r"\s*(\d{1,3})\s*,\s*(\d{1,3})\s*", text)):
        raise InputError(f"committee must be C,T, such as 5,4; got {text!r}")
    size, threshold = int(found[1]), int(found[2])
    check_committee(size, threshold)
    return size, threshold


def committee_facts(
    clients: int,
    quorum: float,
    *,
    committee: str | None,
    federation: str | None,
    may_collude: int | None,
) -> dict[str, int]:
    """The fields `committee`, `threshold` and `colluding` of a `Federation`.

    Parameters
    ----------
    clients, quorum
        of the federation
    committee
        "C,T"; None = by default: all of up to 7 clients, else 7
    federation
        path of a federation.toml, which names it
    may_collude
        None = as many as the committee bears, as long as two others are left in a sum
    """
    if federation is not None:
        named = Roster.read(path_of(federation)).committee
        size, threshold = len(named.members), named.threshold
    elif committee is not None:
        size, threshold = read_committee(committee)
    else:
        size = min(clients, EVERYBODY_UP_TO)
        threshold = default_threshold(size)
        check_committee(size, threshold)
    if may_collude is None:
        least = math.ceil(quorum * clients)
        may_collude = min(colluding(size, threshold), max(0, least - 2))
    return {"committee": size, "threshold": threshold, "colluding": may_collude}
