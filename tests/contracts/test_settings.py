"""No setting of any method is ignored: it changes what comes out, or it is refused.

Generated from the registry. Of `rows_per_client`, a fact about the federation, see the end.
"""

from abc import ABC
from collections.abc import Iterator
from functools import cache, partial
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest

from fedcal.core.checks import InputError, NoEffect
from fedcal.core.imports import registry
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards
from fedcal.mechanisms import MECHANISMS
from fedcal.partition import numbered
from fedcal.privacy.privacy import Federation
from fedcal.run.engines.inline import run_inline
from fedcal.strategies import STRATEGIES
from fedcal.strategies.server.job import Job
from fedcal.strategies.settings import settings_of
from fedcal.units import UNITS

CLIENTS = 12

VALUES: dict[Any, tuple[Any, Any]] = {
    "batch": (4, 64),
    "calibrator": ("", "missing.npz"),
    "by": ("none", "class"),
    "clip": (0.01, 0.3),
    "clip_negative": (1.0, 3.0),
    "clip_positive": (1.0, 3.0),
    "encoding": ("flat", "tree"),
    "epochs": (1, 2),
    "free": (1, 2),
    "groups": (("a",), ("a", "b")),
    "height": (1, 2),
    "iterations": (2, 3),
    "limit": (1.01, 1.1),
    "lr": (0.01, 0.1),
    "network": ("softmax", "mlp"),
    "nll_clip": (1.0, 10.0),
    "penalty": (0.1, 0.5),
    "preset": (None, "paper"),
    "quantile": ("gaps", "prefix"),
    "reach": (1.2, 2.0),
    "rows_per_subject": (1, 3),
    "score": ("confidence", "classes"),
    "shape": ("3", "4"),
    "steps": (2, 6),
    ("conformal", "bins"): (5, 15),
    ("evaluate", "bins"): (5, 15),
    ("evaluate", "within"): ((), ("a",)),
    ("fedprior", "groups"): (numbered(CLIENTS), (*numbered(CLIENTS), "a")),
    ("fedsgd", "clipping"): ("row", "global"),
    ("conformal", "randomised"): (True, False),
}
"""Two values of a setting, of one method or of all; of others see `two_values`."""

ALONG: dict[tuple[str, str], dict[str, Any]] = {
    ("evaluate", "by"): {"groups": ("a", *numbered(CLIENTS))},
    ("evaluate", "within"): {"groups": numbered(CLIENTS), "by": "site"},
    ("conformal", "free"): {"score": "raps"},
    ("conformal", "penalty"): {"score": "raps"},
    ("conformal", "randomised"): {"score": "aps"},
    ("conformal", "rows_known"): {"quantile": "prefix"},
    ("fedsgd", "clip"): {"clipping": "row"},
    ("fedsgd", "reach"): {"clipping": "global"},
}
"""Other settings that a setting needs to have any meaning."""


def two_values(method: str, name: str) -> tuple[Any, Any]:
    """Return those above, or the default and another: of a choice, of `examples`, or half of it."""
    if found := VALUES.get((method, name), VALUES.get(name)):
        return found
    setting = settings_of(method)[name]
    default: Any = setting.default
    for kind in (setting.annotation, *get_args(setting.annotation)):
        if get_origin(kind) is Literal:
            first = get_args(kind)[0] if default is None else default
            return first, next(c for c in reversed(get_args(kind)) if c != first)
    if isinstance(default, bool):
        return False, True
    others = [e[name] for e in STRATEGIES[method].examples if e.get(name, default) != default]
    return default, (others or [type(default)(default / 2)])[0]


RUNS: dict[str, dict[str, Any]] = {
    "exact": {},
    "user": {"epsilon": 5.0},
    "example": {"epsilon": 5.0, "unit": "example"},
    "subject": {"epsilon": 5.0, "unit": "subject"},
    "local": {"epsilon": 50.0, "trust": "local"},
    "distributed": {"epsilon": 5.0, "trust": "distributed"},
    "unary": {"epsilon": 5.0, "trust": "local", "mechanism": "unary"},
}


def turns(method: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each setting, with two runs: exact or for users, and one of the others by turns."""
    runs = list(RUNS)
    for i, name in enumerate(settings_of(method)):
        if name != "rows_per_client":
            turn = i + list(STRATEGIES).index(method)
            yield name, [runs[turn % 2], runs[2 + turn % 5]]


def shards(classes: int) -> Shards:
    rng = np.random.default_rng(classes)
    labels, owner = rng.integers(0, classes, 240), rng.integers(0, CLIENTS, 240)
    logits = 2 * (rng.normal(size=(240, classes)) + np.eye(classes)[labels])
    return rows_by_owner(
        *(logits, labels, owner, CLIENTS),
        groups=labels % 2,
        group_names=("a", "b"),
        other=logits[:, ::-1],
        subjects=np.arange(240) % 7,
        names=numbered(CLIENTS),
    )


@cache
def _outcome(method: str, run: str, classes: int, given: tuple[tuple[str, Any], ...]) -> Any:
    settings = dict(given)
    epochs = method == "fedsgd" and "epochs" in settings  # in place of a number of rounds
    many = {"lr", "server_lr"} & {*settings_of(method)} and not epochs
    rounds: Any = {"rounds": 2} if many else {}
    federation = Federation(CLIENTS, classes, **rounds, **RUNS[run])
    rows: dict[str, Any] = {}
    if STRATEGIES[method].needs_rows(federation, settings):
        rows = {"rows_per_client": 20.0} if "rows_per_client" in settings_of(method) else {}
    try:
        job = Job(method, federation, settings | rows)
        done = job.run(partial(run_inline, shards=shards(classes), unavailable=job.unavailable))
    except NoEffect:
        return NoEffect
    except InputError as e:  # a run that cannot be, whatever the setting
        return str(e)
    arrays = {k: v.tolist() for k, v in done.artifact.arrays().items()}
    return [record["values"] for record in done.records], arrays


def outcome(method: str, run: str, classes: int, settings: dict[str, Any]) -> Any:
    """Return all that comes out, or why nothing does."""
    return _outcome(method, run, classes, tuple(sorted(settings.items())))


def moves(method: str, name: str, run: str, classes: int, **other: Any) -> bool | None:
    """Return whether the two values give two outcomes; None where both are refused."""
    values = two_values(method, name)
    other = ALONG.get((method, name), {}) | other
    one, two = (outcome(method, run, classes, {name: v} | other) for v in values)
    if isinstance(one, (str, type)) and one == two:
        return None
    return bool(one != two)


@pytest.mark.parametrize("method", STRATEGIES)
def test_a_setting_has_an_effect_or_is_refused(method):
    """Refusals are not the rule: each setting does something in some run."""
    for name, some in turns(method):
        for run in some:
            assert moves(method, name, run, 3) is not False, (name, run)
        grid = name == "points" and "search" in settings_of(method)
        more = {"search": "exponential"} if grid else {}
        runs = ("user", "exact", "example", "subject")
        assert any(moves(method, name, run, 3, **more) for run in runs), name


def test_rows_per_client_is_a_fact_and_may_always_stand():
    for method in (m for m in STRATEGIES if "rows_per_client" in settings_of(m)):
        for run in ("exact", "example"):  # where nothing depends on it
            given = outcome(method, run, 3, {"rows_per_client": 20.0})
            assert given is not NoEffect, (method, run)


@pytest.mark.parametrize("member", [*MECHANISMS.values(), *UNITS.values()])
def test_what_a_registry_s_member_lacks_is_found_at_import(member):
    base = next(cls for cls in member.__mro__ if cls.__bases__ in ((ABC,), (object,)))
    with pytest.raises(TypeError, match="Bare lacks"):
        registry(type("Bare", (base,), {"name": "bare"}))
    with pytest.raises(TypeError, match=f"are both called '{member.name}'"):
        registry(member, member)
