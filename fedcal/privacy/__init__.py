"""From a bound to an epsilon: `federation`, `plan`, `ledger`, `audit`."""

from fedcal.privacy.ledger import Ledger
from fedcal.privacy.noise_plan import Federation, Plan, make_plan

__all__ = ["Federation", "Ledger", "Plan", "make_plan"]
