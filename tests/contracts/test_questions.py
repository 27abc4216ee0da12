"""Every method declares what it asks: no round of it asks anything else, and nothing else passes.

The spine asks only what is declared (`Method.open_round`), so each run of any test is a test of
completeness, too; here every method of the registry runs under each unit and trust model.
"""

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from refusals import refused

from fedcal.core.checks import InputError
from fedcal.core.shards import Shards
from fedcal.partition import numbered
from fedcal.privacy.privacy import Federation
from fedcal.privacy.query import QUERIES, Query, Question, check_question
from fedcal.run.engines.inline import run_inline
from fedcal.strategies import STRATEGIES, FederatedStrategy
from fedcal.strategies.settings import settings_of
from fedcal.trust import NOISY, TRUSTS
from fedcal.units import UNITS

CLIENTS, CLASSES = 6, 3


def rows() -> Shards:
    rng = np.random.default_rng(5)
    n = 12 * CLIENTS
    return Shards(
        rng.normal(size=(n, CLASSES)),
        rng.integers(CLASSES, size=n),
        np.arange(CLIENTS + 1) * 12,
        subjects=np.arange(n) // 3,
        names=numbered(CLIENTS),
    )


SHARDS = rows()
SMALL: dict[str, Any] = {"rows_per_client": 12.0}
MORE: dict[str, list[dict[str, Any]]] = {
    "evaluate": [{"edges": "equi-depth"}],
    "conformal": [{"quantile": name} for name in ("gaps", "prefix", "crossing")],
}
"""Beside the examples of a method: what makes it ask in other rounds, or something else."""


def methods(name: str) -> Iterator[FederatedStrategy]:
    """A method by each of its examples, and under each unit and trust model that takes it."""
    examples = (*STRATEGIES[name].examples, *MORE.get(name, []))
    full = "user"
    some = [(unit, trust, examples[0]) for unit in UNITS for trust in TRUSTS if unit != full]
    for unit, trust, example in [*product([full], TRUSTS, examples), *some[:: len(UNITS)]]:
        exact = STRATEGIES[name].exact_only or trust not in NOISY
        epsilon = np.inf if exact else 2.0
        small = {k: v for k, v in SMALL.items() if k in settings_of(name)}
        for rounds in (2, None):  # None = the method's own number
            try:
                own = Federation(
                    CLIENTS, CLASSES, rounds=rounds, epsilon=epsilon, trust=trust, unit=unit
                )
                make: Any = STRATEGIES[name]
                yield make(own, **{**small, **example})
            except InputError:
                continue
            break


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_round_asks_what_is_declared_and_only_that(name):
    ran = 0
    for method in methods(name):
        before = method.questions()
        asked: list[tuple[int, Query]] = []
        query = method.query

        def recorded(number: int, query: Any = query, asked: Any = asked) -> Query | None:
            found: Query | None = query(number)
            if found is not None:
                asked.append((number, found))
            return found

        vars(method)["query"] = recorded
        run_inline(method, SHARDS)
        vars(method).pop("query")
        ran += 1
        assert asked
        assert str(method.questions()) == str(before)  # whatever was learned
        kept = tuple(Question.from_plain(q) for q in json.loads(plain(before)))
        for number, one in asked:
            check_question(kept, number, one)
            for changed in other_queries(one, before):
                refused(f"of round {number} is not one of", check_question, before, number, changed)
    assert ran


def plain(questions: tuple[Question, ...]) -> str:
    return json.dumps([question.to_plain() for question in questions])


def other_queries(asked: Query, questions: tuple[Question, ...]) -> Iterator[Query]:
    """The examples of all other kinds, and the query with each number that is fixed changed."""
    for kind, query in QUERIES.items():
        if all(question.kind != kind for question in questions):
            yield query(**query.examples[0])
    moving = {name for question in questions for name in question.moving}
    for field in fields(asked):
        value = getattr(asked, field.name)
        if field.name in moving or isinstance(value, str) or value is None:
            continue
        other = not value if isinstance(value, bool) else np.asarray(value) * 2
        if not isinstance(other, bool):
            other = other if other.any() else other + 1  # twice nothing is nothing else
            other = other if other.ndim else type(value)(other)
        try:
            yield replace(asked, **{field.name: other})
        except InputError:
            continue


def test_no_method_asks_what_it_does_not_declare():
    method = STRATEGIES["fednewton"](Federation(CLIENTS, CLASSES))
    vars(method)["questions"] = lambda: ()
    refused("may ask nothing", method.open_round, 1)


def test_cuts_that_move_are_of_any_resolution():
    exact = STRATEGIES["conformal"](Federation(CLIENTS, CLASSES))
    fixed = STRATEGIES["evaluate"](Federation(CLIENTS, CLASSES))
    assert exact.questions()[-1].cells == np.inf
    assert fixed.questions()[0].cells == sum(fixed.questions()[0].fixed["edges"].shape) * 2 - 2
