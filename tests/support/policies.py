"""A site's policy as text, in the federation of a digest."""

import datetime
from typing import Any

import tomli_w

USUAL = {
    "federation": "0" * 64,
    "expires": datetime.date(2999, 12, 31),
    "epsilon-total": 2.0,
    "delta-total": 1e-4,
}


def policy_text(**changed: Any) -> str:
    """With other values, or without a line (None)."""
    table = USUAL | {name.replace("_", "-"): value for name, value in changed.items()}
    return tomli_w.dumps({name: value for name, value in table.items() if value is not None})
