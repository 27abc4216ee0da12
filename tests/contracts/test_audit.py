"""Runs of every mechanism keep what they promise, and the audit catches each mistake.

Its parts are tried on right runs; then one thing at a time is broken.
"""

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from experiments.audit import Run, check_noise, epsilon_lower_bound, values_needed
from experiments.studies.own.audits import CELLS, LEVEL, METHODS, audited_claims, row_of, runs_of
from fedcal.clients import answers
from fedcal.core.numerics import Purpose, stream
from fedcal.mechanisms import PRIVATE, Noise, Target, Unary, choice
from fedcal.privacy.curator import Curator
from fedcal.privacy.making import make_plan
from fedcal.privacy.noise_plan import Plan
from fedcal.strategies import STRATEGIES
from fedcal.trust import NOISY, Trust
from fedcal.units import UNITS, Bound

Cell = dict[str, Any]
TOGETHER = [
    {"mechanism": kind.name, "trust": trust.name, "unit": unit.name}
    for kind, trust, unit in product(PRIVATE.values(), NOISY.values(), UNITS.values())
    if trust.accepts(kind) and kind.part in (None, unit.per)
]


def cell_of(mechanism: str, trust: str = "central", unit: str = "user", **fields: Any) -> Cell:
    """Return the study's cell, with just as many values as it takes."""
    asked = {"mechanism": mechanism, "trust": trust, "unit": unit}
    cell = next(one for one in CELLS if asked.items() <= one["privacy"].items())
    return cell | {"seeds": 2 if trust == "central" else 1, "draws": 9000} | fields


def caught(cell: Cell) -> set[str]:
    """Return the parts of the audit that object."""
    row = row_of(cell)
    refused = {"sensitivity": row["attained"] > 1.0, "account": row["spent"] > 1.001}
    refused["noise"] = row["p"] < LEVEL / len(CELLS)
    return {part for part, found in refused.items() if found}


def test_the_study_has_all_that_go_together():
    cells = [cell["privacy"] for cell in CELLS]
    assert all(any(one.items() <= cell.items() for cell in cells) for one in TOGETHER)
    private = {name for name, method in STRATEGIES.items() if not method.exact_only}
    assert {cell["method"] for cell in METHODS} == private


@pytest.mark.parametrize("one", TOGETHER[::3], ids=lambda one: "-".join(one.values()))
def test_no_mechanism_spends_more_than_it_claims(one):
    assert caught(cell_of(**one)) == set()


@pytest.mark.slow
def test_the_study_holds():
    claims = audited_claims([row_of(cell) for cell in (*CELLS, *METHODS)])
    assert [claim for claim in claims if not claim[1]] == []


def test_noise_of_95_percent_is_found_and_the_due_one_is_not_refused():
    (run,) = runs_of(cell_of("gaussian", seeds=1))
    level, scale, rng = LEVEL / len(CELLS), run.plan.noise.scales[0], np.random.default_rng(0)
    n = values_needed(0.95, level / 4)

    def p(factor: float) -> float:
        noise = np.rint(rng.normal(0.0, factor * scale, (1, n))).astype(np.int64)
        return float(check_noise([Run(run.plan, exact=[noise[0]], noise=[noise])])["p"])

    assert min(p(1.0) for _ in range(200)) > level
    assert max(p(0.95) for _ in range(50)) < level


# --- planted mistakes ---


@pytest.mark.parametrize("one", TOGETHER[2:18:6], ids=lambda one: "-".join(one.values()))
def test_half_of_the_sensitivity_is_caught(one, monkeypatch):
    for name in ("sensitivity", "l1_sensitivity"):
        right = getattr(Bound, name).fget
        monkeypatch.setattr(Bound, name, property(lambda b, right=right: right(b) / 2))
    assert "sensitivity" in caught(cell_of(**one))


@pytest.mark.parametrize("one", TOGETHER[::3], ids=lambda one: "-".join(one.values()))
@pytest.mark.parametrize("factor", [2 / 3, 3 / 2])
def test_two_thirds_of_the_noise_and_three_halves_are_caught(one, factor, monkeypatch):
    draw, index, client = Noise.draw, choice.draw_index, Unary.client

    def less(noise: Noise) -> Noise:
        return replace(noise, scales=tuple(factor * scale for scale in noise.scales))

    monkeypatch.setattr(Noise, "draw", lambda noise, source: draw(less(noise), source))
    monkeypatch.setattr(choice, "draw_index", lambda s, e, *rest: index(s, e / factor, *rest))
    monkeypatch.setattr(Unary, "client", lambda *of: client(*of[:2], less(of[2]), of[3]))
    assert caught(cell_of(**one)) == {"noise"}


def test_missing_shares_are_caught(monkeypatch):
    monkeypatch.setattr(Trust, "shares", lambda trust, quorum: 2 * quorum if trust.shared else 1)
    assert caught(cell_of("gaussian", "distributed")) == {"noise"}


@pytest.mark.parametrize("shared", ["rounds", "clients", "numbers"])
def test_noise_that_is_shared_is_caught(shared, monkeypatch):
    same, draw = lambda *of: stream(0, Purpose.NOISE, 0, "same"), Noise.draw
    half = lambda n, source: np.tile(draw(n, source)[: sum(n.lengths) // 2], 2)  # noqa: E731
    places = {"rounds": (Curator, "_source"), "clients": (answers, "_source")}
    monkeypatch.setattr(*places.get(shared, (Noise, "draw")), same if shared in places else half)
    trust = "local" if shared == "clients" else "central"
    assert caught(cell_of("laplace", trust, "example")) == {"noise"}


def test_a_clipped_client_under_unit_example_is_caught(monkeypatch):
    """One row turns a clipped answer from one end of the client's bound to the other."""
    cell = {"method": "fedtemp", "privacy": {"trust": "central", "unit": "example"}}
    assert row_of(cell)["attained"] <= 1.0
    wrong = lambda *of, **more: replace(make_plan(*of, **more), diameter=1)  # noqa: E731
    monkeypatch.setattr("fedcal.strategies.base.make_plan", wrong)
    assert row_of(cell)["attained"] > 1.9


def test_amplification_without_sampling_is_caught(monkeypatch):
    monkeypatch.setattr(Plan, "sample", lambda plan, number: np.arange(plan.clients))
    cell = next(cell for cell in CELLS if "sampling_rate" in cell["privacy"])
    assert caught(cell | {"seeds": 10}) == {"noise"}


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_one_release_that_is_not_counted_is_caught(mechanism, monkeypatch):
    fewer = lambda *of: Target(*of[:2], of[2] - 1, *of[3:])  # noqa: E731
    monkeypatch.setattr("fedcal.privacy.making.Target", fewer)
    assert caught(cell_of(mechanism)) == {"account"}


# --- the bound of an attack ---


def test_the_bound_is_wrong_as_rarely_as_it_says():
    """Randomised response, whose epsilon is known, with an error that can be counted."""
    rng = np.random.default_rng(0)
    epsilon, error, repeats = 1.0, 0.2, 400
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    worlds = ((rng.random((2, 1000)) < [[truth], [1 - truth]]) * 1.0 for _ in range(repeats))
    wrong = sum(epsilon_lower_bound(*world, error=error) > epsilon for world in worlds)
    assert wrong <= repeats * error / 2 + 5 * math.sqrt(repeats * error / 2)


def test_worlds_that_differ_for_certain_are_bounded_by_the_trials_only():
    n = 2000
    # n / 2 hits, no alarm: log of error / 2 to the power of +- 2 / n
    rate = 0.01 ** (2 / n)
    found = epsilon_lower_bound(np.ones(n), np.zeros(n), error=0.02)
    assert found == pytest.approx(math.log(rate / (1 - rate)), rel=1e-9)
