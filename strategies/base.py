"""What every strategy is: a method, and Flower's transport of it."""

from __future__ import annotations

from typing import ClassVar

from fedcal.privacy.ledger import Ledger
from fedcal.privacy.noise_plan import Plan
from fedcal.strategies.method import Family, Method
from fedcal.strategies.server.transport import FlowerTransport


class FederatedStrategy(Method, FlowerTransport):
    """A method over a federation that is also an ordinary Flower strategy.

    Its parameters, attributes and hooks are those of `fedcal.strategies.method.Method`; `start`
    and the rest of Flower's are those of `fedcal.strategies.server.transport.FlowerTransport`. A
    method that does not calibrate sets its `family`.
    """

    family: ClassVar[Family] = "calibrate"

    def __init__(
        self,
        plan: Plan,
        *,
        ledger: Ledger | None = None,
        secure_aggregation: str = "masks",
        **unknown: object,
    ) -> None:
        for key in unknown:  # passed on by every class between; the error names the caller's
            raise TypeError(f"{type(self).__name__}() got an unexpected keyword argument {key!r}")
        Method.__init__(self, plan, ledger=ledger, secure_aggregation=secure_aggregation)
        FlowerTransport.__init__(self)

    @property
    def method(self) -> Method:
        """Method that the strategy runs: itself."""
        return self
