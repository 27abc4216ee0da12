"""From a bound to an epsilon: `federation`, `plan`, `ledger`, `audit`."""

from __future__ import annotations

from fedcal.privacy.ledger import Ledger
from fedcal.privacy.noise_plan import Federation, Plan, make_plan

__all__ = ["Federation", "Ledger", "Plan", "make_plan"]
