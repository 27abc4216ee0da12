"""A site's policy, in the federation of a digest."""

import datetime
from typing import Any

from fedcal.clients.site.policy import Policy

USUAL = {
    "federation": "0" * 64,
    "expires": datetime.date(2999, 12, 31),
    "epsilon_total": 2.0,
    "delta_total": 1e-4,
}


def policy(**changed: Any) -> Policy:
    """Return a policy with other values."""
    return Policy(**USUAL | changed)
