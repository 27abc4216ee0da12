"""From a bound to an epsilon: `federation`, `plan`, `ledger`."""

from functools import partial
from typing import TYPE_CHECKING

from fedcal.core.removed import refuse
from fedcal.privacy.curator import Release as Release
from fedcal.privacy.declared import SEED as SEED
from fedcal.privacy.declared import Question as Question
from fedcal.privacy.declared import Range as Range
from fedcal.privacy.federation import Federation as Federation
from fedcal.privacy.ledger import Ledger as Ledger
from fedcal.privacy.noise_plan import Plan as Plan
from fedcal.privacy.noise_plan import make_plan as make_plan
from fedcal.privacy.privacy import AUTO as AUTO
from fedcal.privacy.query import Query as Query

if not TYPE_CHECKING:
    __getattr__ = partial(refuse, __name__)
