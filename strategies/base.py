"""Base of every strategy: settings, a method, and Flower's transport of it."""

import inspect
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from fedcal import units
from fedcal.calibrators.parametric import LIMIT, ParametricScaling
from fedcal.core import options
from fedcal.core.checks import InputError, finite, interval, listed, needed, same, unused
from fedcal.core.options import check_of
from fedcal.privacy import Federation, Ledger, Plan, Query, Range, make_plan
from fedcal.privacy.query import Order
from fedcal.strategies.method import Family
from fedcal.strategies.server.transport import FlowerTransport
from fedcal.units import UNITS


def _number(name: str, value: Any) -> Any:
    finite(name, value)
    return value


def _names(name: str, value: Any) -> Any:
    """Return a text as it is: JSON, or in a simulation the name of the column that has them."""
    return value if isinstance(value, str) else tuple(listed(name, value, "names"))


# Kinds of settings, with what they may be.
Positive = options.Positive
NotNegative = options.NotNegative
Count = options.Count
integer, among = options.within, options.among
Number = Annotated[float, _number]  # of a plain `int` or `float`
Misses = Annotated[float, interval("(0, 0.5]", "a share of misses up to 0.5, as 0.05")]
Text = Annotated[str, lambda _, value: str(value)]  # `--set` may give a number
Names = Annotated[Sequence[str], _names]
Numbers = Annotated[Sequence[float], lambda name, value: tuple(listed(name, value, "numbers"))]
Preset = Literal["paper"] | None


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
    rows_per_client: float | None

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
        if settings.get("preset"):
            paper = self.paper()
            unused("the defaults are the paper's", preset=None if paper else settings["preset"])
            settings = paper | settings
        for name, parameter in self.declared.items():
            check, value = self.checks[name], settings.get(name, parameter.default)
            setattr(self, name, check(value) if check else value)

    def paper(self) -> dict[str, Any]:
        """Return the settings of the method's paper in this federation, where defaults differ.

        preset="paper" takes those that are not given; a method that has some declares `preset`.
        """
        return {}

    def unused(self, why: str, *names: str) -> None:
        """Refuse settings that would do nothing: `names` that differ from their defaults."""
        given = {name: getattr(self, name) for name in names}
        unused(why, **{k: v for k, v in given.items() if v != self.declared[k].default})

    @property
    def hides_clients(self) -> bool:
        """True if whole clients are protected."""
        return self.federation.private and UNITS[self.federation.unit].by_client

    def nominal_rows(self, method: str) -> float:
        """Return the public nominal number of rows of a client.

        Raises InputError, naming the `method`, if it is not given.
        """
        why = f"{method} needs a public nominal number of rows > 0"
        return needed("rows_per_client", self.rows_per_client, why)


class FederatedStrategy(Settings, FlowerTransport):
    """A method over a federation that is also an ordinary Flower strategy.

    Its settings are declared as those of `Settings`. Its attributes and hooks are those of
    `fedcal.strategies.method.Method`; `start` and the rest of Flower's are those of
    `fedcal.strategies.server.transport.FlowerTransport`. A method that does not calibrate sets its
    `family`.
    """

    family: ClassVar[Family] = "calibrate"
    clip: float | None

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
        if federation.private and self.exact_only:
            other = f"use {self.instead}, or epsilon inf where exact sums may be seen"
            raise InputError(f"{self.name} cannot be run with privacy: {other}")
        options = {"ledger": ledger, "secure_aggregation": secure_aggregation}
        FlowerTransport.__init__(self, self.prepare(), **options)

    @abstractmethod
    def prepare(self) -> Plan:
        """Return the plan of a run, and set what the first question needs.

        `federation` and the settings are set by then, each checked by itself.
        """

    def plan_for(
        self, query: Query, clips: Sequence[float], rounds: int, order: Order = 2, **more: Any
    ) -> Plan:
        """Return the plan of rounds that all ask a question like `query`.

        Parameters
        ----------
        clips, order
            see `Query.bound`; the clips are used where whole clients are clipped
        **more
            see `make_plan`
        """
        bound = query.bound(query.part(self.federation.unit), clips, order)
        return self.plan_with(rounds, bound, row_sums=query.row_sums, **more)

    def plan_with(self, rounds: int, bound: units.Bound, **more: Any) -> Plan:
        """Return the plan of so many rounds, unless the federation has its own; see `make_plan`."""
        f = self.federation
        return make_plan(f, rounds=f.rounds or rounds, bound=bound, **more)

    def check_rounds(self, rounds: int, what: str = "") -> None:
        """Refuse another number of rounds than the method takes here."""
        asked = self.federation.rounds or rounds
        same(f"number of rounds of {self.name}{what} (may be left out)", asked, rounds)

    def client_clip(self, share: float, least: float) -> float:
        """Return the most that one client may add to a sum; 1, unused, if nothing is clipped.

        `share` is of each of the public nominal `rows_per_client`, `least` in all. `clip` is the
        user's own instead; it is refused where it does nothing.
        """
        f, rows = self.federation, self.rows_per_client
        if not f.private:
            self.unused("without privacy there is no clipping", "clip")
        if not UNITS[f.unit].by_client:
            self.unused(f"unit '{f.unit}' knows what a row adds", "clip")
            return 1.0
        if f.private and self.clip is None:
            self.nominal_rows(f"{self.name} with unit 'user' and no clip")
        return self.clip or max(share * (rows or 0.0), least)

    def plan_gradients(self, query: Query, rounds: int, share: float = 0.0, **more: Any) -> Plan:
        """Return the plan of rounds that ask for sums of gradients in log(1/T), or more with them.

        The clip of a client, in nats, balances noise, which grows with it, and the bias of
        clipping, which falls, from public numbers alone:

            C = sqrt(A m (1 + m / 50) / (20 sigma)), from share * m to 20 + 2 m

        with m the nominal rows of a client, A the answers in all rounds (clients * sampling_rate *
        sqrt(rounds)) and sigma the noise std under a clip of 1. With more budget
        both fall, to where clients of m rows are hardly clipped. Form and constants were chosen by
        the log loss of test rows, FedNewton's on nine networks with 20 to 2,000 clients at epsilon
        8 to 0.3; on two others the loss fell, too. C has three digits. With unit "example" no
        client is clipped: what a row may add follows from the question.
        """
        if not self.hides_clients:
            return self.plan_for(query, (1.0,), rounds, **more)  # a clip that is not used
        rows = self.nominal_rows(f"{self.name} with privacy")
        plan = self.plan_for(query, (1.0,), rounds, **more)
        noise = plan.noise_std[0] if plan.noise_std else plan.std_of_draw
        clip = math.sqrt(plan.answers * rows * (1.0 + rows / 50.0) / (20.0 * noise))
        clip = max(share * rows, min(float(f"{clip:.3g}"), 20.0 + 2.0 * rows))
        return self.plan_for(query, (clip,), rounds, **more)


def near_identity(form: type[ParametricScaling], classes: int) -> Range:
    """Return the range of parameters that the server keeps a form's in."""
    identity = form.identity(classes)
    return Range(float(identity.min()) - LIMIT, float(identity.max()) + LIMIT)
