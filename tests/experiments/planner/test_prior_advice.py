"""`fedcal plan --method fedprior`: against the formula by other rows, and at both ends of noise."""

import json
import math

import numpy as np
import pytest
from refusals import refused

from fedcal.core.errors import InputError
from fedcal.experiments.cli.main import _run
from fedcal.experiments.planner.plan import facts_of
from fedcal.experiments.planner.prior_advice import LEAST, PriorAdvice, advise_prior
from fedcal.experiments.runs.config import load_config
from fedcal.personal.prior import identity_prior


def advice(epsilon: float = math.inf, clients: int = 30, classes: int = 2) -> PriorAdvice:
    facts = {"epsilon": epsilon, "unit": "subject", "delta": 1e-5}
    return advise_prior(facts_of(clients, 100.0, classes, None, **facts))


def test_alone_it_is_the_formula():
    z = np.random.default_rng(0).normal(-0.5, 1.6, 200_000)
    p = 1 / (1 + np.exp(-z))
    lever = np.stack([np.ones_like(z), z]) * np.sqrt(p * (1 - p))
    info, sure = lever @ lever.T / len(z), np.linalg.inv(identity_prior(2).cov)
    for line in advice().tried()["rows"]:
        expected = np.trace(info @ np.linalg.inv(sure + line["own_rows"] * info)) / 2
        assert line["alone"] == pytest.approx(expected, rel=0.03)
    alone = [advice(classes=10).excess[0, n] for n in (0, 1000)]
    assert alone[0] / 0.5**2 * 2 == pytest.approx(0.15, abs=0.05)  # information of a row
    assert alone[1] == pytest.approx(1 / 2000, rel=0.1)


def test_the_release_adds_less_with_noise_and_fewer_sites_and_nothing_where_it_drowns():
    exact, private, few = advice(), advice(1.0), advice(1.0, clients=4)
    assert exact.enough_rows > private.enough_rows > few.enough_rows > 5
    falls = exact.excess[0] - exact.excess[1]
    assert falls[exact.enough_rows] < LEAST <= falls[exact.enough_rows - 1]
    drowned = advice(1e-3)
    assert (drowned.chosen, drowned.command, drowned.enough_rows) == (None, None, 1)
    assert abs(drowned.excess[0] - drowned.excess[1]).max() < LEAST


def test_the_command_says_it_and_writes_what_simulate_takes(tmp_path, capsys):
    words = ["plan", "--method", "fedprior", "--clients", "30", "--classes", "2", "--epsilon", "1"]
    words += ["--unit", "subject"]
    full = [*words, "--rows-per-client", "100"]
    assert _run([*full, "--json", "--out", str(tmp_path / "plan")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads((tmp_path / "plan" / "plan.json").read_text("utf-8"))
    assert told["enough_rows"] == advice(1.0).enough_rows
    assert load_config(tmp_path / "plan" / "config.toml", {}).method == "fedprior"
    for given, said in (
        (words, "needs rows_per_client"),
        ([*full, "--data", "heart-disease"], "data has no effect"),
        ([*full, "--rounds", "2"], "rounds has no effect"),
    ):
        assert _run(given) == 2
        assert said in capsys.readouterr().err
    user = facts_of(500, 100.0, 2, None, epsilon=1.0, unit="user", delta=1e-5)
    refused("units example and subject", advise_prior, user, error=InputError)
