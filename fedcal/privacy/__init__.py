"""From a bound to an epsilon: `federation`, `plan`, `ledger`."""

from functools import partial
from typing import TYPE_CHECKING

from fedcal.core.removed import refuse
from fedcal.privacy.curator import Release
from fedcal.privacy.declared import SEED, Question, Range
from fedcal.privacy.federation import Federation
from fedcal.privacy.ledger import Ledger
from fedcal.privacy.noise_plan import Plan, make_plan
from fedcal.privacy.privacy import AUTO
from fedcal.privacy.query import Query

__all__ = [
    "AUTO",
    "SEED",
    "Federation",
    "Ledger",
    "Plan",
    "Query",
    "Question",
    "Range",
    "Release",
    "make_plan",
]

if not TYPE_CHECKING:
    __getattr__ = partial(refuse, __name__)
