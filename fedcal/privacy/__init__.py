"""From a bound to an epsilon: `federation`, `plan`, `ledger`."""

from functools import partial
from typing import TYPE_CHECKING

from fedcal.core.removed import refuse
from fedcal.privacy.ledger import Ledger
from fedcal.privacy.noise_plan import Federation, Plan, make_plan

__all__ = ["Federation", "Ledger", "Plan", "make_plan"]

if not TYPE_CHECKING:
    __getattr__ = partial(refuse, __name__)
