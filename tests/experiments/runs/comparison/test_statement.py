"""What a comparison gives away: the sums of basic composition, and what they are not."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedcal.core.shards import Shards
from fedcal.experiments.runs.comparison.grid import Cell, Variant
from fedcal.experiments.runs.comparison.statement import Spent, spent, statement
from fedcal.experiments.runs.config import Config
from fedcal.experiments.runs.jobs import job_of

SHARDS = Shards.from_owner(np.zeros((50, 3)), np.zeros(50, int), np.arange(50) % 5, 5)


def cell(epsilon: float, seeds: tuple[int, ...] = (0,), **config: Any) -> Cell:
    given = {"data": "d", "method": "fedbin", "partition": "natural", "clients": 5, **config}
    delta = 0.0 if math.isinf(epsilon) else 1e-5
    return Cell(Variant(given["method"]), Config(epsilon=epsilon, **given), seeds, delta)


def test_natural_clients_pay_for_every_run():
    cells = [cell(1.0, (0, 1, 2)), cell(0.5, (0, 1, 2), method="fedtemp")]
    (only,) = spent(cells, "d", "user")
    assert only == (6, pytest.approx(4.5), pytest.approx(6e-5))


def test_dealt_clients_pay_within_a_deal():
    cells = [
        cell(1.0, (0, 1), partition="iid"),
        cell(0.5, (0, 1), partition="iid", method="fedtemp"),
        cell(4.0, (1,), partition="dirichlet:1"),
        cell(4.0, (1,), partition="iid", clients=6),
    ]
    alone, both = Spent(1, 4.0, 1e-5), Spent(2, 1.5, 2e-5)
    assert sorted(spent(cells, "d", "user")) == [alone, alone, both, both]
    # what is not private, or elsewhere, does not count
    cells = [cell(math.inf), cell(1.0, data="e"), cell(math.inf, method="none")]
    assert spent(cells, "d", "user") == []
    assert len(spent(cells, "e", "user")) == 1
    assert spent(cells, "e", "example") == []


def said_of(*cells: Cell, held_out: bool = False) -> str:
    return " ".join(statement(cells, {"d": held_out}))


def test_the_sentences():
    private = [cell(1.0, (0, 1)), cell(2.0, (0, 1), method="fedtemp")]
    said = statement([cell(math.inf, method="none"), *private], {"d": False})
    assert "is itself a release" in said[0]
    assert any("exact and not private" in line for line in said)
    assert any("Noise follows from the seed" in line for line in said)
    assert "all private runs on d spend epsilon = 6, delta = 4e-05 for each user" in " ".join(said)
    assert said[-1].startswith("Lines of the table without privacy: 1.")
    assert not any("held out" in line for line in said)

    deals = said_of(cell(1.0, (0, 1, 2), partition="iid"), held_out=True)
    assert "spend up to epsilon = 1, delta = 1e-05 for each user" in deals
    assert "3 private runs in 3 deals" in deals
    assert "The test rows of d are held out" in deals
    assert "without privacy" not in deals

    exact = said_of(cell(math.inf), cell(math.inf, method="none"))
    assert "Published together" not in exact
    assert "Noise" not in exact
    assert "Lines of the table without privacy: 2." in exact

    system = said_of(planned(noise_source="system"))
    assert "the same comparison again gives other numbers" in system
    assert "Noise follows from the seed" not in system


def test_where_the_number_of_rows_can_be_read():
    for private, told in (
        (cell(1.0, method="fednewton"), True),
        (cell(1.0, method="fedoneshot"), True),
        (cell(1.0, method="fednewton", set={"rows_per_client": 11}), False),
        (cell(math.inf, method="fednewton"), False),
        (cell(1.0, method="fedbin"), False),
        (planned(method="acct", unit="user"), True),
        (planned(method="acct", unit="example"), False),  # where rows are clipped
    ):
        said = said_of(private)
        assert ("Of d the number of fit rows can be read from the noise scales" in said) is told


def planned(epsilon: float = 1.0, **config: Any) -> Cell:
    found = cell(epsilon, **config)
    plan = job_of(found.config, SHARDS).plan
    known = replace(
        found.config, secure_aggregation=job_of(found.config, SHARDS).secure_aggregation
    )
    return replace(found, config=known, plan=plan, delta=plan.delta)


def test_each_guarantee_of_the_table_is_told_once():
    kinds = [("central", "user"), ("distributed", "user"), ("local", "user"), ("local", "example")]
    cells = [
        planned(method=method, trust=trust, unit=unit)
        for trust, unit in kinds
        for method in ("fedbin", "acct")
    ]
    said = [line for line in statement(cells, {"d": False}) if line.startswith("Trust ")]
    assert [tuple(line.split(":")[0].split(", unit ")) for line in said] == [
        (f"Trust {trust}", unit) for trust, unit in kinds
    ]
    assert said[0].endswith("Noise: gaussian, laplace.")
    assert said[1].endswith("Noise: gaussian, laplace.")
    assert "secure aggregation shows nothing but sums" in said[1]
    assert "m times the epsilon" in said[3]
    open_shares = said_of(planned(trust="distributed", secure_aggregation="none"))
    assert "everyone but the server (no secure aggregation)" in open_shares


def test_two_units_do_not_add_up():
    both = [planned(unit="user"), planned(unit="example", epsilon=0.5)]
    said = said_of(*both)
    assert "spend epsilon = 1, delta = 1e-05 for each user" in said
    assert "spend epsilon = 0.5, delta = 1e-05 for each example" in said
    assert "runs of unit user come on top, each with at most twice its epsilon" in said
    assert "come on top" not in said_of(both[0])
