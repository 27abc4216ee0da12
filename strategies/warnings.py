"""Tell from public facts, in a millisecond, if a run has too little data or budget, and warn.

One ratio decides: the noise std of the released sum over the most that all clients together could
add to it. `LIMITS` says how large it may be. `fedcal plan` makes its table with these functions.

With privacy nothing but the plan and the nominal `rows_per_client` is read, which is public: where
a simulation took it from its data, the statement of its privacy says so. Without privacy rows may
be looked at.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedcal.core.checks import TooLittle, warn
from fedcal.datasets import Population
from fedcal.privacy import Federation
from fedcal.privacy.privacy import MOST_CLIENTS
from fedcal.strategies import STRATEGIES
from fedcal.strategies.server.job import Job

SURE = 2.0  # a run is likely to help with so many times less noise than the limit


@dataclass(frozen=True)
class Limits:
    """Public numbers beyond which a run is warned of, and what became of such runs.

    Attributes
    ----------
    most_noise
        noise std of a released sum over the most that all clients can add to it
    least_rows
        rows in all
    least_rows_each, least_rows_class
        rows of each client, and for each class, below which local fits mislead
    row_share
        what a row adds on average, in units of the bound of a row (as 0.2 nats to 4)
    worse
        runs that made the classwise ECE worse, of so many with more noise than this: measured by
        `python -m experiments too-little`; () = not measured
    """

    most_noise: float = 0.5
    least_rows: int = 30
    least_rows_each: int = 0
    least_rows_class: int = 0
    row_share: float = 0.05
    worse: tuple[int, ...] = ()


# Method -> its limits; of others, and of other packages, `Limits()`, and a plan is unsure of them.
# Measured on two shipped data sets as they are, too sure, and with logits so small that they are
# not sure enough.
LIMITS = {
    "fednewton": Limits(3.0),
    "fednewton-entropy": Limits(1.2),
    "fedoneshot": Limits(2.5),  # of eight noisy scores together
    "acct": Limits(0.09, row_share=0.2, worse=(8, 24)),
    "acct, posterior": Limits(0.6),
    "fedtemp": Limits(0.8, least_rows_each=15, worse=(9, 12)),
    "nllt": Limits(0.01, row_share=0.2, worse=(10, 36)),
    "ecet": Limits(0.04, row_share=0.2, worse=(13, 36)),
    "dp-ts": Limits(1.4, worse=(2, 12)),
    "fedvector": Limits(0.2, least_rows_class=1, worse=(22, 24)),  # fewer rows than offsets
    "fedmatrix": Limits(0.1, least_rows_class=1),
    "fedopvector": Limits(0.2, worse=(8, 24)),
    "fedcal": Limits(0.02, worse=(20, 36)),
    "dp-platt": Limits(0.4, worse=(24, 24)),
    "dp-histogram": Limits(0.005, 150, row_share=1.0, worse=(13, 36)),
    "fedbbq": Limits(0.002, 300, row_share=1.0, worse=(12, 36)),
    "fedbin": Limits(0.0004, 300, row_share=1.0, worse=(36, 36)),
}

_DRAWN = 0.3  # `most_noise` of a draw by the exponential mechanism, whatever the method


def underpowered(method: str, shards: Population | None, job: Job | None = None) -> list[str]:
    """Return a line of warning if the run has too little data to help, else nothing.

    Parameters
    ----------
    shards
        with privacy nothing of it is read; None = a server that does not have them
    job
        None for a method without a federation
    """
    each: Any = None if job is None else job.settings.get("rows_per_client")
    one_class = ""
    if job is None or not job.plan.private:
        if shards is None:
            return []
        each, one_class = shards.size / shards.clients, _one_class(method, shards)
    if job is not None and STRATEGIES[method].family == "conformal":
        why = _all_labels(job, each)
    elif job is not None:
        why = one_class or few_rows(method, job.federation, each) or _noisy(job, each)
    elif shards is not None:
        why = one_class or few_rows(method, shards, each)
    return [f"too little data or budget: {why}"] if why else []


def emit(lines: Sequence[str]) -> list[str]:
    """Warn, and return sentences for the statement of privacy, where a reader sees them."""
    for line in lines:
        warn(line, TooLittle)
    return [f"{line[0].upper()}{line[1:]}." for line in lines]


def noise_ratio(job: Job, rows_per_client: float | None) -> float | None:
    """Return the noise std of the released sum over the most that its expected clients can add.

    The block where the ratio is least counts. None if it needs an undeclared number of rows; 0
    without privacy.
    """
    plan, bound = job.plan, job.plan.bound
    if bound is None:
        return None if plan.private else 0.0
    most = plan.federation.sampling_rate * plan.clients
    if bound.per != "client":
        if rows_per_client is None:
            return None
        most *= limits_of(job.method).row_share * rows_per_client
    elif rows_per_client is not None:
        most *= min(1.0, rows_per_client)  # no more clients than rows have anything to add
    if plan.mechanism.answers == "index":  # as much as Laplace noise of the same budget
        return plan.std_of_draw / most
    if plan.mechanism.answers != "sum" or plan.noise_std is None:
        return None
    return min(s / n for s, n in zip(plan.noise_std, bound.norms, strict=True)) / most


def limits_of(method: str) -> Limits:
    """Return the limits of a method or a baseline."""
    return LIMITS.get(method, Limits())


def noise_limit(job: Job) -> float:
    """Return the noise ratio above which chance decides if a run helps."""
    return _DRAWN if job.plan.mechanism.answers == "index" else _limits(job).most_noise


def _limits(job: Job) -> Limits:
    posterior = job.method == "acct" and job.settings.get("search", "golden") != "golden"
    return limits_of("acct, posterior" if posterior else job.method)


def is_useful(job: Job, rows_per_client: float | None) -> bool | None:
    """Return whether a run is likely to help; None if public numbers do not say so."""
    ratio, limit = noise_ratio(job, rows_per_client), noise_limit(job)
    if few_rows(job.method, job.federation, rows_per_client):
        return False
    if ratio is None or job.method not in LIMITS or ratio <= limit < SURE * ratio:
        return None
    return ratio <= limit


def fewest_clients(job: Job, rows_per_client: float | None) -> int | None:
    """Return about how many clients have little enough noise, and rows enough; None = none have.

    The ratio falls as 1 / K, and as 1 / sqrt(K) where each client adds noise of its own.
    """
    ratio, each = noise_ratio(job, rows_per_client), rows_per_client
    if ratio is None:
        return None
    times = SURE * ratio / noise_limit(job)
    clients = job.plan.clients * (times**2 if job.plan.model.alone else times)
    if each is not None:
        clients = max(clients, limits_of(job.method).least_rows / each)
    step = 10.0 ** max(0, math.floor(math.log10(max(clients, 1.0))) - 1)
    found = max(1, round(math.ceil(clients / step) * step))  # two digits
    many = replace(job.federation, clients=min(found, MOST_CLIENTS))
    return None if found > MOST_CLIENTS or few_rows(job.method, many, each) else found


def _all_labels(job: Job, each: float | None) -> str:
    """Return a warning that prediction sets will hold all labels."""
    f = job.federation
    if not job.strategy().hopeless(None if each is None else f.clients * f.sampling_rate * each):
        return ""
    rows = "" if each is None else f" of {each:.4g} rows"
    budget = f" at epsilon {f.epsilon:g} (unit {f.unit}, trust {f.trust})" if f.private else ""
    few = f"{f.clients:,} clients{rows}{budget} are too few for a threshold"
    return f"{few}, and prediction sets hold all labels"


def _one_class(method: str, shards: Population) -> str:
    calibrates = method not in STRATEGIES or STRATEGIES[method].family == "calibrate"
    if not calibrates or len(shards.labels_seen) != 1:
        return ""
    learnt = "can only learn certainty; rows of the other classes are needed"
    return f"all {shards.size:,} rows have the label {shards.labels_seen[0]}, so the fit {learnt}"


def few_rows(method: str, of: Federation | Population, each: float | None) -> str:
    """Return why so many rows are too few for a method, or nothing."""
    limits = limits_of(method)
    least_each = limits.least_rows_each + limits.least_rows_class * of.classes
    if each is None or method == "none":
        return ""
    if (rows := max(1, round(of.clients * each))) < limits.least_rows:
        few = f"{method} learns nothing reliable from {rows:,} rows in all"
        return f"{few}; it needs at least about {limits.least_rows:,}"
    if each < least_each:
        few = f"{method} fits {each:.3g} rows at each client, which misleads"
        return f"{few}; it needs at least about {least_each}, or use fednewton, which adds them up"
    return ""


def _noisy(job: Job, each: float | None) -> str:
    plan, limit, ratio = job.plan, noise_limit(job), noise_ratio(job, each)
    if ratio is None or ratio <= limit:
        return ""
    clients = fewest_clients(job, each)
    needed = "" if clients is None else f"It needs at least about {clients:,} clients; "
    worse = ": in {} of {} such runs on shipped networks the classwise ECE grew"
    measured = worse.format(*_limits(job).worse) if _limits(job).worse else ""
    auto = {**job.settings, "search": "auto"} if job.method == "acct" and each else job.settings
    cure = ": try --set search=auto" if is_useful(replace(job, settings=auto), each) else ""
    return (
        f"with {plan.clients:,} clients at epsilon {plan.epsilon:g} (unit {plan.unit}, trust "
        f"{plan.trust}) the noise on what {job.method} learns is {percent(ratio)} of the largest "
        f"possible sum, more than {percent(limit)}{measured}. {needed}fedcal plan has others{cure}"
    )


def percent(share: float | None) -> str:
    """Return a share in percent, with two significant digits."""
    if share is None:
        return "?"
    return f"{100 * share:,.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"
