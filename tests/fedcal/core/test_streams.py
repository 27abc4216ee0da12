"""Keys of noise streams: equal for equal questions, whatever carries them, and for no others."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from laws import noise as noise_of

from fedcal.clients.questions.histograms import ClassCounts
from fedcal.clients.questions.scaling import MLPUpdate, ScalingUpdate
from fedcal.clients.questions.search import CalibrationGaps
from fedcal.core.numerics import key_of
from fedcal.mechanisms import Laplace
from fedcal.privacy import Federation, Plan, make_plan, wire
from fedcal.privacy.query import Request
from fedcal.privacy.wire import facts_of
from fedcal.secure_aggregation import Ring
from fedcal.units import Bound

BOUND = Bound((2, 1), (1.0, 3.0), "per_block")
NOISE = replace(noise_of("gaussian", (2, 1), (5.0, 6.0), 2), shares=1)


def request(**change: object) -> Request:
    plain = Request(CalibrationGaps(1.5, 3), BOUND, Ring(10, 2.0**-8), 1)
    return replace(plain, **change)


@pytest.mark.parametrize(
    "query",
    [
        ScalingUpdate(np.linspace(-1, 1, 6), "vector", 10.0, 50, True),
        MLPUpdate(np.linspace(-1, 1, 6), 3, 64, 0.03, 2, False),
    ],
)
def test_learned_parameters_are_in_no_noise_key(query):
    """Processors disagree on its digits; a site still tells the two questions apart."""
    (name,) = query.learned
    asked = request(query=query, bound=query.bound("client", (0.5,)))
    other = replace(asked, query=replace(query, **{name: getattr(query, name) + 2.0**-20}))
    assert other.key == asked.key
    assert other.digest != asked.digest


def test_a_question_s_key_survives_the_wire_and_has_all_that_the_noise_follows_from():
    asked = request()
    assert wire.from_fields(wire.to_fields(asked), facts_of(asked.query)).key == asked.key
    assert key_of(np.float32(1.5)) == key_of(np.array(1.5)) == key_of(1.5) != key_of(1)
    noises = [{"mechanism": Laplace}, {"lengths": (1, 2)}, {"scales": (5.0, 6.5)}, {"shares": 3}]
    changes: list[dict[str, Any]] = [
        {},
        {"query": ClassCounts(3)},
        {"query": CalibrationGaps(1.5000001, 3)},
        {"bound": replace(BOUND, order=1)},
        {"bound": replace(BOUND, per="row")},
        {"bound": replace(BOUND, norms=(1.0, 3.5))},
        {"ring": Ring(11, 2.0**-8)},
        {"ring": Ring(10, 2.0**-9)},
        {"rate": 0.5},
        {"noise": NOISE},
        *({"noise": replace(NOISE, **change)} for change in noises),
    ]
    assert len({request(**change).key for change in changes}) == len(changes)
    assert request(round=2, seed=7).key == request().key  # these are the stream's own


OF_NO_CONSEQUENCE = {
    "seed",  # the stream has it
    "noise_source",  # nothing is drawn from a stream but where it is "seeded"
    "counting_rounds",  # exact sums
    "cohort",  # only where nothing is drawn but who takes part
    "classes",  # the question and its bound have what follows from them
}
RESOLVED = {"epsilon", "delta", "mechanism", "quorum", "rounds"}
"""Options of a federation; the plan has the resolved values."""
OTHER = {
    "committee": 5,
    "mechanism": Laplace(0.5),
    "row_rate": 0.5,
    "unit": "example",
    "trust": "local",
    "adjacency": "replace",
    "bound": replace(BOUND, norms=(1.0, 3.5)),
}
PLANNED = {f.name for f in fields(Plan)} - {"federation"}


def changed(made: Any, **change: Any) -> Any:
    """Return it with other fields, unchecked: some of them go with no other."""
    other = object.__new__(type(made))
    for field, value in {**made.__dict__, **change}.items():
        object.__setattr__(other, field, value)
    return other


def test_every_field_of_a_plan_is_in_its_key_or_listed_as_of_no_consequence():
    for name in sorted(PLANNED | {f.name for f in fields(Federation)}):
        plan = make_plan(Federation(clients=10, classes=2, epsilon=1.0), rounds=3, bound=BOUND)
        plan = changed(plan, federation=changed(plan.federation, committee=4, threshold=3))
        value = getattr(plan if name in PLANNED else plan.federation, name)
        change = {name: OTHER.get(name, value + 1 if isinstance(value, (int, float)) else value)}
        if name not in PLANNED:
            change = {"federation": changed(plan.federation, **change)}
        same = name in OF_NO_CONSEQUENCE or name in RESOLVED - PLANNED
        assert (changed(plan, **change).key == plan.key) is same, name
