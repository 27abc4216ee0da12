"""A plan: for each method the noise beside its signal, and what it needs to help; by formulas.

No row is read and nothing is run. The functions are those of a run's own warning.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from fedcal.core import checks, numerics, pages
from fedcal.core.checks import InputError, one_of, positive
from fedcal.core.options import options_of
from fedcal.privacy.privacy import Federation, Privacy
from fedcal.results.page import Displayable
from fedcal.run.comparison.grid import Variant
from fedcal.run.config import layered, takes_options
from fedcal.strategies import warnings
from fedcal.strategies.server.job import Job
from fedcal.strategies.settings import calibrating, lacks_rows
from fedcal.strategies.warnings import percent
from fedcal.units import UNITS

HOME_ROWS = 100  # from so many labelled rows on, one temperature of their own mostly pays

# Budgets among which the smallest that helps is looked for.
EPSILONS = [digit * 10.0**power for power in range(-2, 2) for digit in (1, 1.5, 2, 3, 5, 7)]

ANSWERS = {True: "yes", None: "unsure", False: "no"}
HOME = (
    "First: a site with {:g} labelled rows can calibrate alone, and spends nothing (fedcal "
    "simulate --data OWN --method pooled-temperature); if sites differ, that is better"
)
HOW_TO_READ = (
    "Made from these public facts alone: no row of anybody was looked at",
    "'noise' is the noise std of each released sum, in percent of the most that all clients can "
    "add to it; runs above 'bearable' are warned of; 'yes' is at most "
    f"1/{warnings.SURE:g} of it, and enough rows",
    "'fewest clients' and 'smallest epsilon' lead to 'yes', all else as it is",
    "with unit user a client with many more rows than --rows-per-client is clipped and counts as "
    "one with fewer: the result is nearer to what small clients need than that of all rows",
)


_COLUMNS = ("method", "rounds", "noise", "bearable", "helps", "fewest clients", "smallest epsilon")


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:,}" if value >= 1000 else f"{value:g}"


@dataclass(frozen=True, repr=False)
class PlanTable(Displayable):
    """A plan: a line for each method, the most promising first.

    Attributes
    ----------
    federation, rows_per_client
        the public facts
    methods
        lines of `method`, `rounds`, `mechanism`, `noise_std` (of the released sum, each block),
        `noise` and `bearable` (shares of the largest possible sum), `helps`, `why`,
        `fewest_clients` and `smallest_epsilon` (all else as it is; None = not found)
    refused
        (method, why) of what does not go with the facts
    """

    federation: Federation
    rows_per_client: float
    methods: list[dict[str, Any]]
    refused: list[tuple[str, str]]

    @numerics.override
    def _lines(self) -> list[dict[str, Any]]:
        return self.methods

    def __str__(self) -> str:
        return "\n".join([self.title, *self.words()])

    @property
    def title(self) -> str:
        """The facts."""
        f = self.federation
        rows = f"{f.clients:,} clients, {self.rows_per_client:g} rows each, {f.classes} classes"
        budget = f"epsilon {f.epsilon:g}" if f.private else "no privacy"
        return f"plan for {rows}, {budget}, unit {f.unit}, trust {f.trust}"

    @property
    def recommended(self) -> str | None:
        """The first method, if it is likely to help."""
        return self.methods[0]["method"] if self.methods[0]["helps"] == "yes" else None

    @property
    def verdict(self) -> str:
        """The method that is recommended, or what would be needed."""
        return self.words()[0]

    @property
    def parts(self) -> list[pages.Table | pages.Text]:
        """A line for each method, why it may not help, and how to read the table."""
        rows = [
            (
                *(line["method"], str(line["rounds"]), percent(line["noise"])),
                *(percent(line["bearable"]), line["helps"]),
                *(_number(line[name]) for name in ("fewest_clients", "smallest_epsilon")),
            )
            for line in self.methods
        ]
        why = [line["why"] for line in self.methods if line["why"]]
        why += [f"{name} is left out: {reason}" for name, reason in self.refused]
        table = pages.Table("", _COLUMNS, rows, left=(0, 4))
        return [table, pages.Text("", (*why, *self.words()))]

    def words(self) -> list[str]:
        """Return what to do, and how to read the table."""
        home = self.rows_per_client >= HOME_ROWS and self.federation.clients > 1
        first = [HOME.format(self.rows_per_client)] if home else []
        if self.recommended is not None:
            measured = _best_measured(self.federation, self.recommended)
            why = "best on nine networks" if measured else "with least noise beside its signal"
            first.append(f"Recommended: {self.recommended}, {why}")
            return [*first, *HOW_TO_READ]
        forms = {"fewest_clients": "{} clients", "smallest_epsilon": "epsilon {:g}"}
        found = {k: [line[k] for line in self.methods if line[k] is not None] for k in forms}
        needs = [form.format(min(found[key])) for key, form in forms.items() if found[key]]
        needed = f": it needs about {' or '.join(needs)}" if needs else ""
        return [*first, f"No method is likely to help{needed}", *HOW_TO_READ]

    def to_json(self) -> dict[str, Any]:
        """Return strict JSON: no NaN and no infinity."""
        facts = asdict(self.federation) | {"rows_per_client": self.rows_per_client}
        return {
            "schema": 2,
            "facts": facts if self.federation.private else facts | {"epsilon": "inf"},
            "methods": self.methods,
            "refused": [{"method": name, "why": why} for name, why in self.refused],
            "recommended": self.recommended,
            "statement": self.words(),
        }


@takes_options(Privacy, "seed", "noise_source")
def plan(
    *,
    clients: int | None = None,
    rows_per_client: float | None = None,
    classes: int | None = None,
    method: str | Sequence[str] | None = None,
    **options: Any,
) -> PlanTable:
    """Say by formulas what a budget, rounds and clients buy, before anything runs.

    Parameters
    ----------
    clients
        enrolled; needed
    rows_per_client
        a public nominal number, not a count; needed
    classes
        of the model; needed
    method
        only these, each METHOD or METHOD[KEY=VALUE,...]; None = all that calibrate
    **options
        as of `simulate`: epsilon, delta, unit, trust, sampling_rate, rounds, quorum, mechanism

    Raises
    ------
    InputError
        A fact that is missing or not allowed, or no method that goes with the facts.
    """
    if clients is None or rows_per_client is None or classes is None:
        raise InputError(
            "a plan needs clients, rows_per_client (a public nominal number, not a count) and "
            "classes: for example --clients 100 --rows-per-client 50 --classes 10"
        )
    each = float(positive("rows_per_client", rows_per_client))
    federation = Federation(clients, classes, **layered(options_of(Privacy), options))
    lines, refused = list[dict[str, Any]](), list[tuple[str, str]]()
    known = ["acct[search=auto]" if name == "acct" else name for name in calibrating()]
    for text in [method] if isinstance(method, str) else method or known:
        checks.check_kept(f"plan --method {text}")
        variant = Variant.parse(text)
        one_of("method that calibrates", variant.method, calibrating(), "fedcal plan --help")
        try:
            lines.append(_line(variant, federation, each))
        except InputError as e:
            refused.append((variant.text, str(e)))
    if not lines:
        raise InputError(f"no method goes with these facts: {refused[0][0]}: {refused[0][1]}")
    return PlanTable(federation, each, sorted(lines, key=partial(_rank, federation)), refused)


def _best_measured(federation: Federation, method: str) -> bool:
    """Return whether a method was best at such a budget.

    By study `quality`, nine networks, units user and example; subject: heart-disease, four
    hospitals, four seeds.
    """
    by_client, best = UNITS[federation.unit].by_client, "fednewton-entropy"
    if by_client and federation.epsilon < 1:
        best = "fednewton"
    elif not by_client and federation.unit != "example" and federation.epsilon <= 1:
        best = "acct"
    return federation.private and method.partition("[")[0] == best


def _rank(federation: Federation, line: dict[str, Any]) -> tuple[int, bool, float, float]:
    """Best first: by the answer, what measured best, noise beside the signal, bearable noise."""
    noise = math.inf if line["noise"] is None else line["noise"] / line["bearable"]
    other = not _best_measured(federation, line["method"])
    return [*ANSWERS.values()].index(line["helps"]), other, noise, -line["bearable"]


def _line(variant: Variant, federation: Federation, each: float) -> dict[str, Any]:
    """Return a method's line; InputError if it does not go with the facts."""
    nominal = lacks_rows(variant.method, federation, variant.settings)
    settings = {**variant.settings, **({"rows_per_client": each} if nominal else {})}

    def useful(epsilon: float) -> bool:
        changed = Job(variant.method, replace(federation, epsilon=epsilon), settings)
        return warnings.is_useful(changed, each) is True

    job = Job(variant.method, federation, settings)
    made, few = job.plan, warnings.few_rows(job.method, federation, each)
    look = made.private and not few
    found = bisect_left(EPSILONS, True, key=useful) if look else len(EPSILONS)
    return {
        "method": variant.text,
        "rounds": made.rounds - made.counting_rounds,
        "mechanism": made.mechanism.name,
        "noise_std": made.noise_std and list(made.noise_std),
        "noise": warnings.noise_ratio(job, each),
        "bearable": warnings.noise_limit(job),
        "helps": ANSWERS[warnings.is_useful(job, each)],
        "why": few or None,
        "fewest_clients": warnings.fewest_clients(job, each),
        "smallest_epsilon": [*EPSILONS, None][found],
    }
