"""`from fedcal import simulate`: one run in Python."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from strategy_checks import BUDGETED

from fedcal import SimulationResult, calibrators, compare, datasets, simulate
from fedcal.core.checks import RoundFailed, TooLittle
from fedcal.metrics import summary
from fedcal.privacy.ledger import Ledger
from fedcal.run.config import POOLED, Config
from fedcal.strategies.settings import calibrating

pytestmark = pytest.mark.usefixtures("quick_figures")

PRIVATE: dict[str, Any] = {"method": "fednewton", "epsilon": 1.0, "clients": 40, "seed": 3}


def rows(n: int = 240, classes: int = 3, test: int = 0) -> dict[str, Any]:
    """Overconfident logits with labels, and a test part if wanted."""
    rng = np.random.default_rng(5)
    labels = rng.integers(0, classes, n + test)
    logits = rng.normal(size=(n + test, classes))
    logits[np.arange(n + test), labels] += 1.0
    found = {"logits": 3 * logits[:n], "labels": labels[:n]}
    if test:
        found |= {"test_logits": 3 * logits[n:], "test_labels": labels[n:]}
    return found


def same_bits(a: SimulationResult, b: SimulationResult) -> bool:
    ours, theirs = a.calibrator.arrays(), b.calibrator.arrays()
    return (
        a.test_probs.tobytes() == b.test_probs.tobytes()
        and a.rounds == b.rounds
        and {k: v.tobytes() for k, v in ours.items()} == {k: v.tobytes() for k, v in theirs.items()}
    )


def test_arrays_a_dataset_and_a_path_give_the_same_result(tmp_path):
    np.savez(tmp_path / "rows.npz", **rows())
    by_arrays = simulate(rows(), **PRIVATE)
    by_dataset = simulate(datasets.from_arrays(**rows()), **PRIVATE)
    by_path = simulate(tmp_path / "rows.npz", **PRIVATE)
    by_config = simulate(config=Config(data=str(tmp_path / "rows.npz"), **PRIVATE))
    for other in (by_dataset, by_path, by_config):
        assert same_bits(by_arrays, other)
        assert other.after == by_arrays.after
    assert by_arrays.config.data == "arrays"
    config = Config(data="densenet-cifar100", method="none")  # data win over its name
    result = simulate("imdb-binary", config=config)
    assert (result.config.data, result.calibrator.classes) == ("imdb-binary", 2)
    assert result.after == result.before
    assert simulate(rows(), config=config).calibrator.classes == 3
    assert by_path.config.data == by_config.config.data == str(tmp_path / "rows.npz")


@pytest.mark.parametrize("method", [*calibrating(), *POOLED])
def test_the_result_is_about_the_test_rows(method):
    data = rows(test=80)
    result = simulate(data, method=method, clients=20)
    probs = result.calibrator.predict_proba(data["test_logits"])
    assert probs.tobytes() == result.test_probs.tobytes()
    assert result.after == pytest.approx(summary(probs, data["test_labels"]))
    identity = calibrators.Identity().fit(data["logits"], data["labels"])
    before = identity.predict_proba(data["test_logits"])
    assert result.before == pytest.approx(summary(before, data["test_labels"]))
    if method not in ("none", "fedtemp", "fedbin"):  # local optima, or empty bins, make it worse
        assert result.after["nll"] < result.before["nll"]
    for part, metrics in (("before", result.before), ("after", result.after)):
        assert result.reliability[part].rows == 80
        assert result.reliability[part].ece == pytest.approx(metrics["ece"])


def test_when_nobody_answers_nothing_is_charged_or_written(tmp_path):
    path, out, data = str(tmp_path / "l.db"), tmp_path / "out", rows()
    for method in BUDGETED:
        options: dict[str, Any] = {**PRIVATE, "method": method, "dropout": 1.0}
        with pytest.raises(RoundFailed, match="none answered"):
            simulate(data, **options, ledger=path, cap=1.0, out=out)
        assert not out.exists(), method
        with Ledger(path) as ledger:
            assert ledger.entries() == (), method


def test_inverted_test_rows_are_warned_of_and_not_kept():
    data = datasets.load("heart-disease").split(0)
    turned = replace(
        data,
        scores=np.ascontiguousarray(data.scores[:, ::-1]),
        test_scores=np.ascontiguousarray(np.asarray(data.test_probs)[:, ::-1]),
    )
    options: dict[str, Any] = {"clients": 50, "epsilon": 1.0, "seed": 0}
    with pytest.warns(UserWarning, match="^test rows: the scores rank rows the wrong way") as told:
        result = simulate(turned, **options)
    assert len(told) == 1
    assert "wrong way" not in str(result.privacy)
    with pytest.warns(UserWarning, match="heart-disease: test rows: the scores rank") as told:
        compare(turned, method="none", seeds=1, jobs=1)
    assert len(told) == 1


def test_a_delta_from_one_over_clients_on_is_warned_of():
    for delta, warned in ((1 / 40, True), (0.0249, False)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.simplefilter("ignore", TooLittle)
            simulate(rows(), **PRIVATE, delta=delta)
        assert ["below 1/clients" in str(w.message) for w in caught] == [True] * warned
    simulate(rows(), clients=20, delta=0.5)  # without privacy a warning would be an error
