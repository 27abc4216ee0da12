"""From a bound to an epsilon: `federation`, `plan`, `ledger`."""

from typing import TYPE_CHECKING

from fedcal.core.imports import lazily

if TYPE_CHECKING:
    from fedcal.privacy.curator import Release
    from fedcal.privacy.ledger import Ledger
    from fedcal.privacy.making import make_plan
    from fedcal.privacy.noise_plan import Plan
    from fedcal.privacy.privacy import AUTO, Federation
    from fedcal.privacy.query import SEED, Query, Question, Range

__all__ = ["AUTO", "SEED", "Federation", "Ledger", "Plan"]
__all__ += ["Query", "Question", "Range", "Release", "make_plan"]

if not TYPE_CHECKING:
    modules = "privacy", "query", "noise_plan", "ledger", "curator", "making"
    __getattr__ = lazily(__name__, __all__, *modules)
