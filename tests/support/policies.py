"""A site's policy, in the federation of a digest, and the facts of a job."""

import datetime
import math
from typing import Any

from fedcal.clients.site.policy import OWN_NOISE, JobFacts, Policy

USUAL = {
    "federation": "0" * 64,
    "expires": datetime.date(2999, 12, 31),
    "epsilon_total": 2.0,
    "delta_total": 1e-4,
}
FACTS = JobFacts(
    *("0" * 64, "fedtemp", "user", "distributed", "zero-out", "gaussian", 1.0, 1e-6, 9, OWN_NOISE),
    *("hub.example:9092", math.inf),
)


def policy(**changed: Any) -> Policy:
    """Return a policy with other values."""
    return Policy(**USUAL | changed)
