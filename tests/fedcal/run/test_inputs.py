"""What people give as data: frames, tensors, lists; methods as tables print them."""

from typing import Any

import numpy as np
import pytest

from fedcal import compare, datasets, evaluate, prediction_sets, simulate
from fedcal.core.checks import InputError
from fedcal.datasets import Dataset
from fedcal.run.load import load_any

pytestmark = pytest.mark.usefixtures("quick_figures")

LABELS = np.arange(60) % 3
LOGITS = np.random.default_rng(0).normal(size=(60, 3)) + 2 * np.eye(3)[LABELS]


def frame(**more: Any) -> Any:
    pandas = pytest.importorskip("pandas")
    scores = {f"logit_{j}": LOGITS[:, j] for j in range(3)}
    return pandas.DataFrame({"label": LABELS, **scores, **more})


def same(found: Dataset) -> bool:
    return np.array_equal(found.scores, LOGITS) and np.array_equal(found.labels, LABELS)


def test_frames_hold_lists_scores_and_columns_that_may_lack_values():
    assert same(load_any(frame()[["label"]].assign(logits=LOGITS.tolist())))
    assert same(load_any(frame().astype({"label": "Int64"})))
    two = datasets.from_frame(frame()[["label"]].clip(0, 1).assign(score=0.25))
    np.testing.assert_array_equal(two.scores, np.tile([0.75, 0.25], (60, 1)))
    with pytest.raises(InputError, match=r"probs: 2 at row \d+; .* must lie in \[0, 1\]"):
        datasets.from_frame(frame()[["label"]].clip(0, 1).assign(score=2.0))
    with pytest.raises(InputError, match="unknown column 'age'"):
        load_any(frame(age=1))
    bare = datasets.from_frame(frame().drop(columns="label"), labels_required=False)
    assert not bare.labelled


def test_a_pair_is_logits_and_labels_and_may_be_tensors():
    torch = pytest.importorskip("torch")
    assert same(load_any((LOGITS, LABELS)))
    assert same(load_any((torch.tensor(LOGITS, requires_grad=True), torch.tensor(LABELS))))
    pair: Any = {"method": "fedtemp", "clients": 3, "seeds": 1, "epsilon": "inf", "jobs": 1}
    assert {cell["data"] for cell in compare((LOGITS, LABELS), **pair).cells} == {"arrays"}
    named = [{"logits": LOGITS, "labels": LABELS}, frame()]
    assert {cell["data"] for cell in compare(named, **pair).cells} == {"arrays", "frame"}


def test_prediction_sets_are_the_method_conformal(tmp_path):
    data, few = (LOGITS, LABELS), {"clients": 3, "partition": "iid"}
    simulate(data, **few).calibrator.save(tmp_path / "c.npz")
    asked = {"alpha": 0.3, "score": "raps", "by": "class"}
    made: Any = {"calibrator": tmp_path / "c.npz", "set": {"penalty": 0.02}, **asked}
    sets = prediction_sets(data, **few, **made)
    settings = asked | {"penalty": 0.02, "calibrator": str(tmp_path / "c.npz")}
    same = simulate(data, **few, method="conformal", set=settings)
    (tmp_path / "c.toml").write_text(same.config.to_toml(), "utf-8")
    again = prediction_sets(data, config=tmp_path / "c.toml")
    assert sets.config == same.config == again.config
    np.testing.assert_array_equal(sets.sets.thresholds, same.sets.thresholds)
    for call, more in ((prediction_sets, {"alpha": 0.1}), (evaluate, {"bins": 8})):
        with pytest.raises(InputError, match=f"{next(iter(more))} has no effect here: config"):
            call(data, config=sets.config, **more)
