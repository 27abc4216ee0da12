"""The one door from options to a job: what a server runs, in plain values.

Behind it nothing asks the options again: the job holds what a server needs, and `run` of
`fedcal.run.engines` takes it from there.
"""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

from fedcal.calibrators import load
from fedcal.core import checks, naming
from fedcal.core.naming import digest_of, names_in
from fedcal.core.shards import Shards
from fedcal.datasets import Population
from fedcal.privacy.privacy import Federation, Privacy
from fedcal.results.labels import APP, STUDY
from fedcal.run.config import EVERYBODY_UP_TO, Config, default_threshold, read_committee
from fedcal.secure_aggregation import roster
from fedcal.storage.artifact import Holdout
from fedcal.storage.atomic import path_of
from fedcal.strategies import STRATEGIES
from fedcal.strategies.server.job import GRACE, TIMEOUT, Books, Job
from fedcal.strategies.settings import check_subjects, lacks_rows, nominal_rows, settings_of
from fedcal.trust import TRUSTS
from fedcal.units import UNITS

Held = TypeVar("Held", bound=Population)

METHOD = "evaluate"

BY = ("none", "site", "group")
"""Values of `by`: rows are counted together, by client, or by their column `group`."""


def evaluates(method: str) -> bool:
    """Return whether a method evaluates: clients then hold the evaluated rows."""
    return method in STRATEGIES and STRATEGIES[method].family == "evaluate"


def is_personal(method: str) -> bool:
    """Return whether a method serves recalibration at home: it knows sites by their names."""
    return method in STRATEGIES and STRATEGIES[method].family == "personal"


def _by_site(config: Config) -> bool:
    """Return whether rows are counted by site, with the sites still to be named."""
    groups = config.set.get("groups")
    if is_personal(config.method):
        hidden = math.isfinite(config.epsilon) and UNITS[config.unit].by_client
        return groups in (None, "site") and not hidden
    return groups == "site" and evaluates(config.method)


def settings(
    by: str = "none", calibrator: str | Path | None = None, **others: Any
) -> dict[str, Any]:
    """Return the method's settings from the options of `evaluate`, without those not given."""
    checks.one_of("by", by, BY)
    path = None if calibrator is None else str(path_of(calibrator).resolve())
    values = {"calibrator": path, "groups": None if by == "none" else by, **others}
    return {name: value for name, value in values.items() if value is not None}


def resolved(config: Config, rows: Held, names: tuple[str, ...]) -> tuple[Config, Held]:
    """Return config and rows with the settings of an evaluation resolved for these rows.

    `groups` "site" and "group" become the list of their names. Names that are no groups of the rows
    are those of clients, which then have them; for prediction sets a row's group is its client. A
    second model is evaluated where the rows have its scores, if no calibrator is given.

    Raises InputError for rows in blocks that are to be counted by client.
    """
    known, chosen = settings_of(config.method), dict(config.set)
    if not isinstance(rows, Shards) and (is_personal(config.method) or "site" in chosen.values()):
        raise checks.InputError("rows in blocks are not told apart by client: leave out by site")
    shards = cast("Shards", rows)  # what is asked of rows in blocks, they have, too
    if is_personal(config.method):
        shards = replace(shards, names=names)
        chosen |= {"groups": "site"} if _by_site(config) else {}
    if shards.has_other and "other" in known and "calibrator" not in chosen:
        chosen.setdefault("other", True)
    asked: Any = chosen.get("groups", "")
    if "groups" not in known or not asked:
        return replace(config, set=chosen), cast("Held", shards)
    if asked == "group" and not shards.group_names:
        raise checks.InputError("the data have no column group; --by site takes clients instead")
    parts = list(shards.group_names if asked == "group" else names)
    if asked not in BY:
        listed = checks.listed("groups", asked, f"names, or {' or '.join(BY[1:])}")
        parts = [naming.plain_name("groups", str(name)) for name in listed]
    chosen["groups"] = json.dumps(parts)
    by_site = "site" in (asked, chosen.get("by"))
    if by_site or set(parts) <= set(names) - set(shards.group_names):
        if evaluates(config.method):
            chosen["by"], shards = "site", replace(shards, names=names)
        elif not is_personal(config.method):
            shards = replace(shards, groups=shards.owner, group_names=names)
    return replace(config, set=chosen), cast("Held", shards)


def holdout(
    shards: Shards, names: tuple[str, ...], seed: int, class_names: tuple[str, ...] | None = None
) -> Holdout:
    """Return the evaluated rows, for exact numbers that a researcher sees beside the release."""
    rows = (shards.logits, shards.probs, shards.labels)
    return Holdout(*rows, seed, owner=shards.owner, names=names, class_names=class_names)


_ANY = 2  # classes, until real sites say how many


def federation_of(config: Config, shards: Population | None) -> Federation:
    """Return the public facts and the budget of a run.

    Raises InputError if a value is not allowed.

    Parameters
    ----------
    config
        what was asked for
    shards
        how the rows were dealt; None = real sites keep theirs, and say how many classes there are
    """
    clients = config.clients or 0 if shards is None else shards.clients
    names = () if config.class_names is None else names_in(config.class_names)
    path = config.set.get("calibrator")  # real sites have its classes
    classes = len(names) or (load(str(path)).classes if path and shards is None else _ANY)
    classes = classes if shards is None else shards.classes
    how = {**config.part(Privacy), **_committee(config, clients)}
    federation = Federation(clients, classes, **how)
    if shards is not None:
        check_subjects(federation, shards)
    elif federation.committee:
        federation.fewest()  # here, and not once the server has started
    return federation


def job_of(config: Config, shards: Population | None) -> Job:
    """Return the server's job from the options and the partitioned rows.

    In a simulation `rows_per_client`, a public number in a deployment, is by default the mean of
    the simulated shards (of their subjects, where each counts once), where the method needs it: it
    tells how many rows there are. Real sites keep their rows: they say what classes and scores they
    have, noise and coins come from the operating system, and the seed fixes public choices alone.

    Raises InputError if the method or its privacy plan refuses a value, or real sites need one that
    a simulation takes from its rows.
    """
    if shards is None:
        config = replace(config, noise_source="system")
    federation = federation_of(config, shards)
    settings = dict(config.set)
    if lacks_rows(config.method, federation, settings):
        if shards is None:
            raise checks.InputError(
                f"{config.method} with privacy needs a public nominal number of rows of a client, "
                "chosen without looking: give --set rows_per_client=200, in Python "
                'set={"rows_per_client": 200}'
            )
        settings["rows_per_client"] = nominal_rows(config.method, federation, shards)
    known: dict[str, Any] = {} if shards is None else {"input": shards.input}
    # a share of noise alone protects no client, their sum does
    sums = "masks" if TRUSTS[str(federation.trust)].shared else "none"
    sums = "protocol" if config.protocol else config.secure_aggregation or sums
    how = config.part(Books) | {"secure_aggregation": sums, "dropout": config.dropout}
    if config.engine in ("grpc", APP, STUDY):  # real processes, for which the server waits
        known |= {"tolerant": True}
        known |= {"timeout": config.timeout or TIMEOUT, "grace": config.grace or GRACE}
        if config.engine == STUDY and config.class_names is not None:
            known["class_digest"] = digest_of(names_in(config.class_names))
    return Job(config.method, federation, settings, **known, **how)


def _committee(config: Config, clients: int) -> dict[str, Any]:
    """`committee`, `threshold` and `colluding` of a `Federation`; {} without the protocol.

    By default all of up to 7 clients are members, else 7; and as many may collude as the committee
    bears, as long as two others are left in a sum.
    """
    if not config.protocol:
        return {}
    if config.committee is not None:
        size, threshold = read_committee(config.committee)
    else:
        size = min(clients, EVERYBODY_UP_TO)
        threshold = default_threshold(size)
        roster.check_committee(size, threshold)
    most = config.colluding
    if most is None:
        least = math.ceil(config.quorum * clients)
        most = min(roster.colluding(size, threshold), max(0, least - 2))
    return {"committee": size, "threshold": threshold, "colluding": most}
