"""A run with too little data or budget says so in a line, and healthy ones say nothing."""

import re
from dataclasses import replace
from typing import Any

import pytest
from strategy_checks import BUDGETED, nobody, some_shards

from fedcal import simulate
from fedcal.core.checks import TooLittle
from fedcal.privacy.privacy import Federation
from fedcal.run.config import merge
from fedcal.run.jobs import job_of
from fedcal.strategies.methods.conformal import QUANTILES
from fedcal.strategies.server.job import Job
from fedcal.strategies.warnings import LIMITS, Limits, noise_ratio, underpowered

pytestmark = pytest.mark.filterwarnings("error::fedcal.core.checks.TooLittle")


TOO_FEW: dict[str, dict[str, Any]] = {
    "crossing": {"clients": 20, "epsilon": 0.1},
    "gaps": {"clients": 10, "epsilon": 0.05, "trust": "distributed"},
    "exponential": {"clients": 20, "epsilon": 0.5},
    "prefix": {"clients": 20, "epsilon": 0.001, "unit": "example"},
    "exact": {"clients": 20},
}


@pytest.mark.filterwarnings("ignore:rows_per_client")
@pytest.mark.parametrize("rule", QUANTILES)
def test_too_few_for_a_threshold_are_warned_of_beforehand(rule):
    more = {"exact": {"alpha": 0.00001}, "prefix": {"rows_per_client": 20.0}}
    settings = {"quantile": rule, **more.get(rule, {})}
    with pytest.warns(TooLittle, match="are too few for a threshold") as caught:
        result = simulate("imdb-binary", method="conformal", set=settings, **TOO_FEW[rule])
    (line,) = {str(one.message) for one in caught if issubclass(one.category, TooLittle)}
    assert result.after["all_labels"] == 1
    assert any(line[1:] in sentence for sentence in result.privacy["more"])


def test_where_half_of_the_clients_have_no_row_the_noise_is_of_the_others():
    job = Job("fednewton", Federation(400, 3, epsilon=1.0), {"rows_per_client": 0.5})
    half, one, two = (noise_ratio(job, rows) or 0.0 for rows in (0.5, 1.0, 2.0))
    assert half == pytest.approx(2 * one)
    assert one == two > 0


@pytest.mark.parametrize(("trust", "power"), [("central", 1), ("local", 2)])
def test_noise_is_too_much_from_the_allowed_part_on_and_clients_make_up_for_it(
    trust, power, monkeypatch
):
    """Noise over what K clients add falls as 1 / K, and as 1 / sqrt(K) with noise of each."""
    federation = Federation(50, 3, epsilon=1.0, trust=trust)
    job = Job("fednewton", federation, {"rows_per_client": 100.0})
    ratio = job.plan.noise_std[0] / job.plan.bound.norms[0] / 50
    assert noise_ratio(job, 100.0) == pytest.approx(ratio)
    monkeypatch.setitem(LIMITS, "fednewton", Limits(ratio))
    assert not underpowered("fednewton", None, job)
    monkeypatch.setitem(LIMITS, "fednewton", Limits(ratio / 1.5))
    (line,) = underpowered("fednewton", None, job)
    stated = int(re.findall(r"at least about ([\d,]+) clients", line)[0].replace(",", ""))
    assert 1 <= stated / (50 * 3.0**power) <= 1.1  # half of what is allowed: SURE is 2
    assert f"is {100 * ratio:,.0f} % of the largest" in line
    more = Job("fednewton", replace(federation, clients=stated), job.settings)
    assert noise_ratio(more, 100.0) == pytest.approx(ratio / 3, rel=0.1)


@pytest.mark.parametrize("unit", ["user", "example"])
def test_with_privacy_no_row_is_looked_at(unit):
    """Two federations that differ in every row, and in how many there are."""
    full, fewer = (some_shards(3, rows=n, clients=4) for n in (200, 4))
    for method in BUDGETED:
        given = merge({"method": method, "epsilon": 1.0, "unit": unit, "clients": 4})
        job = job_of(given, full)
        lines = underpowered(method, full, job)
        assert lines == underpowered(method, nobody(4), job), method
        if "rows_per_client" not in job.settings:  # nor is their number, unless it is declared
            assert underpowered(method, fewer, job_of(given, fewer)) == lines, method
