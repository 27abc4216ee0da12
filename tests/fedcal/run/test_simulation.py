"""`from fedcal import simulate`: one run in Python."""

import warnings
from typing import Any

import numpy as np
import pytest
from made_up import halves

from fedcal import SimulationResult, calibrators, datasets, simulate
from fedcal.core.checks import TooLittle
from fedcal.metrics import summary
from fedcal.run.config import POOLED, Config

pytestmark = pytest.mark.usefixtures("quick_figures")

ROWS = halves(3, 240, 5, 1.0)
PRIVATE: dict[str, Any] = {"method": "fednewton", "epsilon": 1.0, "clients": 40, "seed": 3}


def bits(result: SimulationResult) -> Any:
    return result.rounds, result.after, result.test_probs.tobytes()


def test_arrays_a_dataset_and_a_path_give_the_same_result(tmp_path):
    np.savez(tmp_path / "rows.npz", **ROWS)
    by_arrays = simulate(ROWS, **PRIVATE)
    by_dataset = simulate(datasets.from_arrays(**ROWS), **PRIVATE)
    by_path = simulate(tmp_path / "rows.npz", **PRIVATE)
    by_config = simulate(config=Config(data=str(tmp_path / "rows.npz"), **PRIVATE))
    for other in (by_dataset, by_path, by_config):
        assert bits(other) == bits(by_arrays)
    # data win over a config's
    config = Config(data="densenet-cifar100", method="none")
    assert simulate("imdb-binary", config=config).calibrator.classes == 2


@pytest.mark.parametrize("method", ["fedtemp", "fedbbq", "fedmatrix", *POOLED])
def test_the_result_is_about_the_test_rows(method):
    data = halves(3, 240, 5, 1.0)
    result = simulate(data, method=method, clients=20)
    probs = result.calibrator.predict_proba(data["test_logits"])
    assert probs.tobytes() == result.test_probs.tobytes()
    assert result.after == pytest.approx(summary(probs, data["test_labels"]))
    identity = calibrators.Identity().fit(data["logits"], data["labels"])
    before = identity.predict_proba(data["test_logits"])
    assert result.before == pytest.approx(summary(before, data["test_labels"]))
    if method not in ("none", "fedtemp"):  # local optima make it worse
        assert result.after["nll"] < result.before["nll"]


def test_a_delta_from_one_over_clients_on_is_warned_of():
    for delta, warned in ((1 / 40, True), (0.0249, False)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.simplefilter("ignore", TooLittle)
            simulate(ROWS, **PRIVATE, delta=delta)
        assert ["below 1/clients" in str(w.message) for w in caught] == [True] * warned
    simulate(ROWS, clients=20, delta=0.5)  # without privacy a warning would be an error
