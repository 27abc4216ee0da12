"""A site's policy as text, for a run of one method."""

import datetime
from typing import Any

import tomli_w

USUAL = {
    "methods": ["fedbin"],
    "unit": ["user"],
    "trust": ["distributed"],
    "adjacency": ["zero-out"],
    "rounds": 2,
    "expires": datetime.date(2999, 12, 31),
    "epsilon-per-run": 1.0,
    "epsilon-total": 2.0,
    "delta-per-run": 1e-5,
    "delta-total": 1e-4,
    "secure-aggregation": "any",
}


def policy_text(**changed: Any) -> str:
    """With other values, or without a line (None)."""
    table = USUAL | {name.replace("_", "-"): value for name, value in changed.items()}
    return tomli_w.dumps({name: value for name, value in table.items() if value is not None})
