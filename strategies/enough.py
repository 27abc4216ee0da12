"""Warnings of runs that are unlikely to help, with what they need, from public facts.

The planner simulates for seconds; this takes a millisecond on every run. It looks at one ratio: the
noise of the released sum over the most that all clients together could add to it. In the planner's
runs (3 to 1,000 clients, epsilon 0.1 to 8, 2 and 10 classes) a method that pays by `choice.PAYS`
and `choice.MOST_WORSE` has hardly ever a ratio above its `most_noise`.

With privacy nothing but the plan and the nominal `rows_per_client` is read, which is public: where
a simulation took it from its data, the statement of its privacy says so. Without privacy rows may
be looked at.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from fedcal.core.errors import InputError, TooLittle
from fedcal.core.shards import Population
from fedcal.privacy.federation import MOST_CLIENTS, Federation
from fedcal.privacy.noise_plan import Plan
from fedcal.strategies import STRATEGIES
from fedcal.strategies.server.job import Job
from fedcal.strategies.settings import Setting, settings_of
from fedcal.units import Example

DRAWN = 0.5
"""`most_noise` of a draw by the exponential mechanism, whatever the method."""

LEAST_ROWS = 30
"""Rows in all that any method needs."""


@dataclass(frozen=True)
class Limits:
    """Public numbers beyond which a run of a method hardly ever makes the model better.

    Attributes
    ----------
    most_noise
        noise std of a released sum over the most that all clients can add to it
    least_rows
        rows in all
    least_rows_each, least_rows_class
        rows of each client, and for each class, below which local fits mislead
    """

    most_noise: float = 0.5
    least_rows: int = LEAST_ROWS
    least_rows_each: int = 0
    least_rows_class: int = 0


LIMITS = {
    "fedtemp": Limits(least_rows_each=15),
    "fednewton": Limits(most_noise=1.2),
    "fednewton-entropy": Limits(most_noise=1.2),
    "fedoneshot": Limits(most_noise=2.5),  # of eight noisy scores together
    "acct": Limits(most_noise=1.0),
    "nllt": Limits(most_noise=0.1),
    "ecet": Limits(most_noise=0.1),
    "fedvector": Limits(most_noise=0.2, least_rows_class=1),  # fewer rows than offsets
    "fedmatrix": Limits(most_noise=0.1, least_rows_class=1),
    "fedopvector": Limits(most_noise=0.2),
    "fedcal": Limits(most_noise=0.02),
    "fedbin": Limits(most_noise=0.01, least_rows=300),
    "fedbbq": Limits(most_noise=0.02, least_rows=300),
    "dp-histogram": Limits(most_noise=0.02, least_rows=150),
}
"""Method -> its limits; of others, and of other packages, `Limits()`."""

ROW_SHARE = 0.05
"""What a row adds on average, in units of the bound of a row (as 0.2 nats to 4 of `fednewton`)."""

SURE = 2.0
"""What is recommended has so many times less noise: `most_noise` is where hope ends."""

_DOUBLED = 12
"""How often clients are doubled, at most, to find as many as prediction sets take."""

OTHERS = ("acct", "fednewton")
"""Methods that the planner mostly recommends with few clients."""


def too_little(method: str, shards: Population | None, job: Job | None = None) -> list[str]:
    """Return a line of warning if the run has too little data to help, else nothing.

    Parameters
    ----------
    shards
        with privacy nothing of it is read; None = a server that does not have them
    job
        None for a method without a federation
    """
    private = job is not None and job.plan.private
    if job is not None and STRATEGIES[method].family == "conformal":
        each = _declared(job)
        if not private and shards is not None:
            each = shards.size / shards.clients
        why = _all_labels(job, each) if private or shards is not None else ""
    elif job is not None and private:
        each = _declared(job)
        why = _few_rows(method, job.plan.clients, each, job.federation.classes) or _noisy(job, each)
    elif shards is None:
        why = ""
    else:
        each = shards.size / shards.clients
        same = _one_class(shards) if _calibrates(method) else ""
        why = same or _few_rows(method, shards.clients, each, shards.classes)
    return [f"unlikely to help: {why}"] if why else []


def tell(lines: Sequence[str], record: dict[str, Any], stacklevel: int) -> None:
    """Warn, and put it where a reader of the result sees it: in the statement of its privacy."""
    for line in lines:
        warnings.warn(line, TooLittle, stacklevel=stacklevel + 1)
        record["statement"].append(f"{line[0].upper()}{line[1:]}.")


def noise_ratio(plan: Plan, rows_per_client: float | None) -> float | None:
    """Return the noise std of the released sum over the most that its expected clients can add.

    The block where the ratio is least counts. None if it needs an undeclared number of rows.
    """
    bound = plan.bound
    if bound is None:
        return None
    most = plan.sampling_rate * plan.clients
    if bound.per != "client":
        if rows_per_client is None:
            return None
        most *= ROW_SHARE * rows_per_client
    elif rows_per_client is not None:
        most *= min(1.0, rows_per_client)  # no more clients than rows have anything to add
    if plan.law.answers == "index":  # as much as Laplace noise of the same budget
        return math.sqrt(8.0) * plan.diameter / plan.epsilon_per_release / most
    if not plan.noisy_sums or plan.noise_std is None:
        return None
    return min(s / n for s, n in zip(plan.noise_std, bound.norms, strict=True)) / most


def limits_of(method: str) -> Limits:
    """Return the limits of a method or a baseline."""
    return LIMITS.get(method, Limits())


def _allowed(method: str, plan: Plan) -> float:
    return DRAWN if plan.law.answers == "index" else limits_of(method).most_noise


def _calibrates(method: str) -> bool:
    """Return whether a method or baseline yields a calibrator, so that another may replace it."""
    return method not in STRATEGIES or STRATEGIES[method].family == "calibrate"


def _declared(job: Job) -> float | None:
    """Return the public nominal number of rows of a client."""
    rows: Any = job.settings.get("rows_per_client")
    return None if rows is None else float(rows)


def _all_labels(job: Job, each: float | None) -> str:
    """Return a warning that prediction sets will hold all labels, and what would help."""
    f = job.federation

    def hopeless(federation: Federation) -> bool:
        rows = None if each is None else federation.clients * federation.sampling_rate * each
        return replace(job, federation=federation).strategy().hopeless(rows)

    if not hopeless(f):
        return ""
    would = []
    for k in range(1, _DOUBLED):
        clients = f.clients * 2**k
        if clients <= MOST_CLIENTS and not hopeless(replace(f, clients=clients)):
            would.append(f"with about {clients:,} clients")
            break
    if job.plan.private and job.plan.protected.whole_client:
        with suppress(InputError):
            if not hopeless(replace(f, unit=Example.name)):
                would.append(f"with unit {Example.name}, which protects a row, not a client")
    of = "" if each is None else f" of {each:.4g} rows"
    budget = f" at epsilon {f.epsilon:g} (unit {f.unit}, trust {f.trust})" if f.private else ""
    instead = f"; they would hold fewer {' or '.join(would)}" if would else ""
    return (
        f"{f.clients:,} clients{of}{budget} are too few for a threshold, and prediction sets hold "
        f"all labels{instead}"
    )


def _one_class(shards: Population) -> str:
    seen = shards.labels_seen
    if len(seen) != 1:
        return ""
    return (
        f"all {shards.size:,} rows to fit on have the label {seen[0]}, so the fit "
        "can only learn certainty; rows of the other classes are needed"
    )


def _few_rows(method: str, clients: int, each: float | None, classes: int) -> str:
    limits = limits_of(method)
    least = limits.least_rows
    least_each = limits.least_rows_each + limits.least_rows_class * classes
    if each is None or method == "none":
        return ""
    rows = max(1, round(clients * each))
    if rows < least:
        advice = "; fednewton needs fewer" if least > LEAST_ROWS and _calibrates(method) else ""
        return (
            f"{method} learns nothing reliable from {rows:,} rows in all; it needs at least "
            f"about {least:,}, from more clients or from more rows each{advice}"
        )
    if each < least_each:
        advice = ", or use fednewton, which adds up rows of all clients"
        return (
            f"{method} lets each client fit its own rows, which misleads with {each:.3g} of them "
            f"each; it needs at least about {least_each} rows each"
            f"{advice if _calibrates(method) else ''}"
        )
    return ""


def _noisy(job: Job, each: float | None) -> str:
    plan = job.plan
    ratio, allowed = noise_ratio(plan, each), _allowed(job.method, plan)
    if ratio is None or ratio <= allowed:
        return ""
    times = SURE * ratio / allowed
    if plan.many_draws:  # there the noise, too, grows with the number of clients
        times **= 2
    needed = [f"at least about {_round_up(plan.clients * times):,} clients", *_others(job, each)]
    return (
        f"with {plan.clients:,} clients at epsilon {plan.epsilon:g} (unit {plan.unit}, trust "
        f"{plan.trust}) the noise on each number that {job.method} learns is {_percent(ratio)} of "
        f"its largest possible sum; above {_percent(allowed)} runs rarely help. "
        f"It needs {', or '.join(needed)}"
    )


def _others(job: Job, each: float | None) -> list[str]:
    """Another method, or another unit, whose noise is small enough for so many clients."""
    if job.plan.sampling_rate < 1:
        return []  # accounting of subsampled noise takes too long for a hint
    names = []
    for name in OTHERS if _calibrates(job.method) else ():
        if name != job.method and _helps(name, replace(job.federation, rounds=None), each):
            names.append(f"the method {name}")
            break
    if job.plan.protected.whole_client and each is not None:
        rows = replace(job.federation, unit=Example.name)
        if _helps(job.method, replace(rows, rounds=None), each):
            names.append(f"unit {Example.name}, which protects a row, not a client")
    return names


def _helps(method: str, federation: Federation, each: float | None) -> bool:
    """Return whether a method with its default settings has little enough noise."""
    rows: dict[str, Setting] = {}
    if "rows_per_client" in settings_of(method):
        rows = {"rows_per_client": each or 50.0}  # of unit user the ratio does not depend on it
    try:
        plan = Job(method, federation, rows).plan
    except InputError:
        return False
    ratio = noise_ratio(plan, each)
    return ratio is not None and SURE * ratio <= _allowed(method, plan)


def _percent(share: float) -> str:
    return f"{100 * share:,.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def _round_up(number: float) -> int:
    """Round up to two significant digits."""
    step = 10.0 ** max(0, math.floor(math.log10(number)) - 1)
    return round(math.ceil(number / step) * step)
