"""What can be trained on, how it is cut, and one line for each kind of bad input."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from refusals import each_is_refused

from fedcal.core.checks import InputError
from fedcal.run.load import load_any
from fedcal.run.load import test_part as part_for_tests
from fedcal.run.training_config import TrainConfig
from fedcal.run.training_data import (
    IN_MEMORY,
    PARTS,
    ClientData,
    load,
    read_labelled,
)
from fedcal.sites.rows import read_rows
from fedcal.training.networks import enlist

RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, (200, 6, 6), dtype=np.uint8)
Y = np.arange(200) % 4


class Net(torch.nn.Sequential):
    def __init__(self) -> None:
        super().__init__(torch.nn.Flatten(), torch.nn.Linear(36, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = super().forward(x.float())
        return logits


def npz(folder: Path, name: str = "data.npz", **arrays: Any) -> str:
    path = folder / name
    np.savez(path, **arrays)
    return str(path)


def dealt(data: str, **options: Any) -> ClientData:
    """As FedAvg cuts rows, for a module that reads images."""
    usual = {"method": "fedavg", "model": enlist(Net)}
    return load(TrainConfig(data=data, **(usual | options)))[0]


def test_every_row_is_in_one_part_of_one_client_and_the_seed_says_which(tmp_path):
    data = npz(tmp_path, x=X, y=Y)
    options: dict[str, Any] = {"clients": 7, "partition": "dirichlet:0.5"}
    a, again, other = (dealt(data, seed=s, **options) for s in (1, 1, 2))
    assert a.clients == 7
    parts = [a.parts[name] for name in PARTS]
    found = [(x.tobytes(), y) for part in parts for x, y in zip(part.x, part.y, strict=True)]
    assert sorted(found) == sorted((x.tobytes(), y) for x, y in zip(X, Y, strict=True))
    for name in ("calibration", "test"):
        assert len(a.parts[name].y) == a.sizes[name].sum() == pytest.approx(20, abs=12)
    assert a.fingerprint() == again.fingerprint() != other.fingerprint()
    assert np.array_equal(a.parts["test"].x, again.parts["test"].x)


def test_natural_clients_keep_their_rows_and_are_left_out_or_cut(tmp_path):
    data = npz(tmp_path, x=X, y=Y, client=np.array(["b", "a"])[np.arange(200) // 150])
    federation = dealt(data)
    assert federation.names == ("a", "b")
    assert sum(federation.sizes[name] for name in PARTS).tolist() == [50, 150]
    assert dealt(data, clients=1, seed=3).clients == 1
    with pytest.raises(InputError, match=r"must be a whole number >= 3, got 2"):
        dealt(data, clients=3)


MARK = 7


def _test_rows_of(kind: str, folder: Path) -> str:
    """A file, or a folder, whose test rows alone hold the value `MARK`."""
    train, test = X[:150] // 2 * 2, np.full((50, 6, 6), MARK, np.uint8)  # even numbers and 7
    y, test_y, client = Y[:150], Y[150:], np.arange(150) % 5
    flat, flat_test = train.reshape(150, -1)[:, :4] + 0.0, test.reshape(50, -1)[:, :4] + 0.0
    if kind.startswith("images"):
        who = {"client": client, "test_client": client[:50]} if kind.endswith("clients") else {}
        return npz(folder, x=train, y=y, test_x=test, test_y=test_y, **who)
    if kind == "features":
        arrays = {"features": flat, "y": y, "test_features": flat_test, "test_y": test_y}
        return npz(folder, **arrays, class_names=list("abcd"))
    if kind == "logits":
        return npz(folder, logits=flat, labels=y, test_logits=flat_test, test_labels=test_y)
    path = folder / f"rows.{kind}"
    columns = {f"logit_{k}": np.r_[flat[:, k], flat_test[:, k]] for k in range(4)}
    columns |= {"label": Y, "split": np.repeat(["train", "test"], (150, 50))}
    frame = pytest.importorskip("pandas").DataFrame(columns)
    frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    return str(path)


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("images", "fedavg"),
        ("images of clients", "dp-fedavg"),
        ("features", "fedsgd"),
        ("features", "fedavg"),
    ],
)
def test_nothing_is_trained_on_a_test_part(tmp_path, kind, method):
    model = "mlp" if kind == "features" else enlist(Net)
    options: dict[str, Any] = {"method": method, "model": model}
    options["unit"] = "user" if method == "dp-fedavg" else "example"
    if kind in ("images", "features"):
        options |= {"partition": "iid", "clients": 4}
    data = _test_rows_of(kind, tmp_path)
    made = dealt(data, **options)
    trained = made.shards()
    assert not (trained.inputs == MARK).any()
    assert (made.parts["test"].x == MARK).all()
    assert made.sizes["test"].sum() == 50


@pytest.mark.parametrize("kind", ["pair", "lists", "tensors", "frame", "file's keys"])
def test_rows_in_memory_are_those_of_a_file(tmp_path, kind):
    x, names = RNG.normal(size=(200, 3)).astype(np.float32), np.array(list("dcab"))
    who, group = np.arange(200) % 5, np.array(["m", "f"])[np.arange(200) % 2]
    file = {
        "features": x,
        "labels": Y,
        "client": who,
        "group": group,
        "class_names": sorted("abcd"),
    }
    asked = TrainConfig(data=npz(tmp_path, **file), seed=1)
    labels = np.sort(names)[Y]
    given: Any = {"rows": x, "labels": labels, "client": who, "group": group}
    if kind == "pair":
        asked, given = replace(asked, clients=4, partition="iid"), (x, labels[:, None])
    elif kind == "lists":
        given = {key: value.tolist() for key, value in given.items()}
    elif kind == "tensors":
        tensor = pytest.importorskip("torch").from_numpy
        given |= {"rows": tensor(x).requires_grad_(), "labels": tensor(Y), "client": tensor(who)}
        given["class_names"] = np.sort(names)
    elif kind == "frame":
        columns = {0: x[:, 0], 1: x[:, 1], "label": labels, "client": who, "c": x[:, 2]}
        given = pytest.importorskip("pandas").DataFrame(columns | {"group": group})
    else:
        given = file
    found, config = load(replace(asked, data=IN_MEMORY), given)
    wanted, resolved = load(asked)
    assert found.fingerprint() == wanted.fingerprint()
    assert replace(config, data=asked.data) == resolved
    if kind != "pair":
        assert found.parts["train"].group_names == wanted.parts["test"].group_names == ("f", "m")


@pytest.mark.parametrize("kind", ["logits", "csv", "parquet"])
def test_nothing_is_fitted_to_a_test_part(tmp_path, kind):
    data = _test_rows_of(kind, tmp_path)
    loaded = load_any(data).split(0)
    at_site = read_rows(data, list("abcd"))[0]
    for logits in (loaded.scores, at_site.logits):
        assert not (logits == MARK).any()
        assert len(logits) == 150
    assert (at_site.test_logits == MARK).all()
    assert (part_for_tests(loaded, 0).logits == MARK).all()
    assert (loaded.evaluated().scores == MARK).all()


def test_bad_arrays(tmp_path):
    table: list[tuple[dict[str, Any], str]] = [
        ({"y": Y}, "one of the arrays 'features' and 'x' is needed"),
        ({"x": X}, "one of the arrays 'labels' and 'y' is needed"),
        ({"x": X, "y": Y, "z": Y}, "unknown key 'z'"),
        ({"x": X[0], "y": Y}, r"x: must be uint8 .* \(rows, height, width.*got uint8 \(6, 6\)"),
        ({"x": X.astype(int), "y": Y}, "x: must be uint8 .* got int64"),
        ({"x": np.full(X.shape, np.nan), "y": Y}, "x: all values must be finite"),
        (
            {"x": X, "y": Y[1:]},
            r"y: must have shape \(200,\), one entry for each row of x",
        ),
        ({"x": X, "y": Y - 1}, "y: -1 at row 0; must be a class"),
        ({"x": X, "y": np.where(Y == 1, np.nan, 0)}, "y: nan at row 1"),
        ({"x": X, "y": np.where(Y, "a", "b")}, "y: '[ab]' at row 0; must be a class in"),
        ({"x": X, "y": 0 * Y}, "number of classes must be"),
        ({"x": X, "y": Y, "client": Y / 2}, "client: 0.5 at row 1; must be whole numbers"),
        ({"x": X, "y": Y, "test_x": X}, "one of the arrays 'test_labels' and 'test_y' is needed"),
        ({"x": X, "y": Y, "norm": 1.0}, "norm has no effect here: the rows are not features"),
        ({"x": X, "y": Y, "test_x": X[:, 1:], "test_y": Y}, "kind of test_x must be"),
        ({"x": X, "y": Y, "group": Y, "test_x": X, "test_y": Y}, "use of test_group must be"),
    ]
    path = str(tmp_path / "data.npz")
    each_is_refused(table, lambda arrays: read_labelled(npz(tmp_path, **arrays)), repr(path))
