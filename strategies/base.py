"""What every strategy is: settings, a method, and Flower's transport of it."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

from fedcal.core.checks import listed, one_of, positive, whole
from fedcal.core.errors import InputError
from fedcal.privacy.federation import Federation
from fedcal.privacy.ledger import Ledger
from fedcal.privacy.noise_plan import Plan
from fedcal.queries.base import check_of, finite
from fedcal.strategies.method import Family
from fedcal.strategies.server.transport import FlowerTransport

Check = Callable[[str, Any], Any]


def integer(low: int, high: int | None = None) -> Check:
    """Return the check of a whole number from `low` to `high`, both included."""
    return lambda name, value: whole(name, value, low, high)


def among(names: Iterable[str]) -> Check:
    """Return the check of one of these names."""
    return lambda name, value: one_of(name, value, names)


def non_negative(name: str, value: Any) -> float:
    """Return `value` as a finite float >= 0, or raise InputError."""
    if value == 0 and not isinstance(value, bool):
        return 0.0
    return positive(f"{name}, unless it is 0,", value)


def share(name: str, value: Any) -> float:
    """Return `value` as a float between 0 and 1, or raise InputError."""
    if positive(name, value) >= 1:
        raise InputError(f"{name} must be in (0, 1), got {value!r}")
    return float(value)


def _number(name: str, value: Any) -> Any:
    finite(name, value)
    return value


def _names(name: str, value: Any) -> Any:
    """Return a text as it is: JSON, or in a simulation the name of the column that has them."""
    return value if isinstance(value, str) else tuple(listed(name, value, "names"))


# Kinds of settings, with what they may be.
Number = Annotated[float, _number]  # of a plain `int` or `float`
Positive = Annotated[float, positive]
NonNegative = Annotated[float, non_negative]
Share = Annotated[float, share]
Count = Annotated[int, integer(1)]
Text = Annotated[str, lambda _, value: str(value)]  # `--set` may give a number
Names = Annotated[Sequence[str], _names]
Numbers = Annotated[Sequence[float], lambda name, value: tuple(listed(name, value, "numbers"))]


class Settings:
    """Base of what has settings: its public annotated attributes that have a default.

    They are the keyword arguments of the constructor, and `--set` of the command line. Where they
    are set each is checked by its annotation: a `bool`, a text, a `Literal`, or one that
    `Annotated` gives a check, as `Positive` and `Annotated[int, integer(1, 9)]` do, or None.
    """

    declared: ClassVar[Mapping[str, inspect.Parameter]] = {}
    """Setting -> its default and its annotation."""
    checks: ClassVar[Mapping[str, Callable[[Any], Any] | None]] = {}
    federation: Federation

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        texts, kinds = inspect.get_annotations(cls), inspect.get_annotations(cls, eval_str=True)
        keyword = partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
        declared, checks = dict[str, inspect.Parameter](), dict[str, Any]()
        for name, text in texts.items():
            if name in vars(cls) and name[0] != "_" and "ClassVar" not in str(text):
                declared[name] = keyword(name, default=vars(cls)[name], annotation=text)
                plain = {int: Number, float: Number}
                checks[name] = check_of(name, plain.get(kinds[name], kinds[name]))
        for base in cls.__bases__:
            if issubclass(base, Settings):
                declared = declared | {k: v for k, v in base.declared.items() if k not in declared}
                checks = {**base.checks, **checks}
        cls.declared, cls.checks = declared, checks
        first = inspect.Parameter("federation", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        cls.__signature__ = inspect.Signature([first, *declared.values()])  # type: ignore[attr-defined]

    def __init__(self, federation: Federation, **settings: Any) -> None:
        for key in settings.keys() - self.declared.keys():
            raise TypeError(f"{type(self).__name__}() got an unexpected keyword argument {key!r}")
        self.federation = federation
        for name, parameter in self.declared.items():
            check, value = self.checks[name], settings.get(name, parameter.default)
            setattr(self, name, check(value) if check else value)


class FederatedStrategy(Settings, FlowerTransport):
    """A method over a federation that is also an ordinary Flower strategy.

    Its settings are declared as those of `Settings`. Its attributes and hooks are those of
    `fedcal.strategies.method.Method`; `start` and the rest of Flower's are those of
    `fedcal.strategies.server.transport.FlowerTransport`. A method that does not calibrate sets its
    `family`.
    """

    family: ClassVar[Family] = "calibrate"
    classes: int

    def __init__(
        self,
        federation: Federation,
        *,
        ledger: Ledger | None = None,
        secure_aggregation: str = "masks",
        **settings: Any,
    ) -> None:
        Settings.__init__(self, federation, **settings)
        self.classes = federation.classes
        options = {"ledger": ledger, "secure_aggregation": secure_aggregation}
        FlowerTransport.__init__(self, self.prepare(federation), **options)

    @abstractmethod
    def prepare(self, federation: Federation) -> Plan:
        """Return the plan of a run, and set what the first question needs.

        The settings are set and checked by then, each by itself.
        """
