"""A fitted model of scikit-learn or torch, and rows: its scores, its classes, its mode."""

from typing import Any

import numpy as np
import pytest
from refusals import each_is_refused

from fedcal.datasets import from_model
from fedcal.datasets.model_scores import BATCH

sklearn_linear = pytest.importorskip("sklearn.linear_model")
torch = pytest.importorskip("torch")

RNG = np.random.default_rng(0)
NAMES = np.array(["cat", "dog", "bird"])
Y = np.arange(90) % 3
X = RNG.normal(size=(90, 4)) + np.eye(3, 4)[Y]
NEW = RNG.permutation(90)[:60]
FITTED = sklearn_linear.LogisticRegression().fit(X, NAMES[Y])


class Net(torch.nn.Module):
    """Its batch norm is frozen while the rest trains."""

    def __init__(self, outputs: int = 3, wrapped: bool = False) -> None:
        super().__init__()
        self.norm, self.line = torch.nn.BatchNorm1d(4), torch.nn.Linear(4, outputs)
        self.drop, self.wrapped, self.most = torch.nn.Dropout(0.5), wrapped, 0
        self.norm.eval()

    def forward(self, x: Any) -> Any:
        assert not self.training
        assert not torch.is_grad_enabled()
        self.most = max(self.most, len(x))
        z = self.drop(self.line(self.norm(x)))
        return type("Output", (), {"logits": z}) if self.wrapped else z


def test_a_classifier_names_its_columns_and_labels_are_found_by_them():
    data = from_model(FITTED, (X[NEW], NAMES[Y][NEW]))
    assert (data.name, data.input) == ("scores of LogisticRegression", "probs")
    assert data.class_names == ("bird", "cat", "dog")
    np.testing.assert_array_equal(data.probs, FITTED.predict_proba(X[NEW]))
    assert [data.class_names[j] for j in data.labels] == NAMES[Y][NEW].tolist()
    moved = from_model(FITTED, (X[NEW], NAMES[Y][NEW]), classes=("cat", "dog", "bird"))
    np.testing.assert_array_equal(moved.probs, data.probs[:, [1, 2, 0]])
    assert moved.labels.tolist() == Y[NEW].tolist()
    odd = Y % 2 == 1
    found = from_model(sklearn_linear.LogisticRegression().fit(X, odd), (X, odd.reshape(-1, 1)))
    assert found.class_names == ("False", "True")
    np.testing.assert_array_equal(found.labels, odd)


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_torch_model_is_run_in_batches_and_given_back_as_it_was(wrapped):
    model, rows = Net(wrapped=wrapped), np.tile(X, (7, 1))
    data = from_model(model, (torch.tensor(rows, requires_grad=True), torch.tensor(np.tile(Y, 7))))
    assert (model.training, model.norm.training, model.drop.training) == (True, False, True)
    assert model.most == BATCH < len(rows)
    expected = (rows / np.sqrt(1 + 1e-5)) @ model.line.weight.detach().numpy().T
    expected += model.line.bias.detach().numpy()
    np.testing.assert_allclose(data.logits, expected, atol=1e-5)
    again = from_model(model, {"rows": {"x": rows.astype(np.float32)}, "labels": np.tile(Y, 7)})
    np.testing.assert_allclose(again.logits, data.logits, atol=1e-6)


def test_what_does_not_go_together_is_refused():
    net, rows = Net(), (X, Y)
    bare = sklearn_linear.LogisticRegression()
    gaps = np.where(X > 3, np.nan, X)
    table = [
        ((bare, rows), "a LogisticRegression .* no fitted classifier"),
        ((FITTED, (X, NAMES[Y - 1] + "s")), r"label '\w+s' at row 0 .* \(bird, cat, dog\)"),
        ((FITTED, (gaps, NAMES[Y])), "model LogisticRegression, .* fails: .*NaN"),
        ((FITTED, {"rows": X, "label": Y}), "unknown key 'label'"),
        ((net, (X[:, :2], Y)), "model Net, on these rows, fails: RuntimeError"),
        ((torch.nn.Unflatten(1, (2, 2)), rows), "model: Unflatten returns outputs of 3 dimensions"),
        ((net, (X[:0], Y[:0])), "rows: no rows"),
    ]
    each_is_refused(table, lambda case: from_model(*case))
    assert net.training
