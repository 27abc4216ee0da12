"""What can be trained on, how it is cut, and one line for each kind of bad input."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from refusals import each_is_refused

from fedcal.core.checks import InputError
from fedcal.partition import held_out
from fedcal.run.load import load_any
from fedcal.run.load import test_part as part_for_tests
from fedcal.run.training_config import TrainConfig
from fedcal.run.training_data import IN_MEMORY, PARTS, ClientData, load, read_labelled, split
from fedcal.sites.rows import read_rows
from fedcal.training.networks import register_network

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


def deal_rows(data: str, **options: Any) -> ClientData:
    """As FedAvg cuts rows, for a module that reads images."""
    usual = {"method": "fedavg", "model": register_network(Net)}
    return load(TrainConfig(data=data, **(usual | options)))[0]


def test_natural_clients_keep_their_rows_and_are_left_out_or_cut(tmp_path):
    data = npz(tmp_path, x=X, y=Y, client=np.array(["b", "a"])[np.arange(200) // 150])
    federation = deal_rows(data)
    assert federation.names == ("a", "b")
    assert sum(federation.sizes[name] for name in PARTS).tolist() == [50, 150]
    assert deal_rows(data, clients=1, seed=3).clients == 1
    with pytest.raises(InputError, match=r"must be a whole number >= 3, got 2"):
        deal_rows(data, clients=3)


MARK = 7


EVEN = X // 2 * 2


@pytest.mark.parametrize("method", ["fedavg", "dp-fedavg", "fedsgd"])
def test_nothing_is_trained_on_a_test_part(tmp_path, method):
    test = {"test_x": np.full((50, 6, 6), MARK, np.uint8), "test_y": Y[150:]}
    arrays = {"x": EVEN[:150], "y": Y[:150], **test}
    options: dict[str, Any] = {"method": method, "unit": "example"}
    if method == "dp-fedavg":  # natural clients
        arrays |= {"client": np.arange(150) % 5, "test_client": np.arange(50) % 5}
        options["unit"] = "user"
    else:
        options |= {"partition": "iid", "clients": 4}
    made = deal_rows(npz(tmp_path, **arrays), **options)
    assert not (made.shards().inputs == MARK).any()
    assert (made.parts["test"].x == MARK).all()
    assert made.sizes["test"].sum() == 50


def test_nothing_is_fitted_to_a_test_part(tmp_path):
    test = {"test_logits": np.full((50, 4), MARK + 0.0), "test_labels": Y[150:]}
    data = npz(tmp_path, logits=EVEN[:150, 0, :4] + 0.0, labels=Y[:150], **test)
    loaded = load_any(data).split(0)
    at_site = read_rows(data, list("abcd"))[0]
    for logits in (loaded.scores, at_site.logits):
        assert not (logits == MARK).any()
        assert len(logits) == 150
    assert (at_site.test_logits == MARK).all()
    assert (part_for_tests(loaded, 0).logits == MARK).all()
    assert (loaded.evaluated().scores == MARK).all()


@pytest.mark.parametrize("kind", ["pair", "tensors"])
def test_rows_in_memory_are_those_of_a_file(tmp_path, kind):
    x, names = RNG.normal(size=(200, 3)).astype(np.float32), np.array(list("abcd"))
    ids = {"client": np.arange(200) % 5, "group": np.array(["m", "f"])[np.arange(200) % 2]}
    config = TrainConfig(data=npz(tmp_path, features=x, labels=Y, class_names=names, **ids), seed=1)
    given: Any = (x, names[Y][:, None])
    if kind == "pair":
        config = replace(config, clients=4, partition="iid")
    else:
        tensor = pytest.importorskip("torch").from_numpy
        given = {"rows": tensor(x).requires_grad_(), "labels": tensor(Y), "class_names": names}
        given |= ids | {"client": tensor(ids["client"])}
    found, resolved = load(replace(config, data=IN_MEMORY), given)
    of_file, expected = load(config)
    assert found.fingerprint() == of_file.fingerprint()
    assert replace(resolved, data=config.data) == expected
    if kind != "pair":
        for part in PARTS:
            assert [*found.parts[part].group] == [*of_file.parts[part].group]


def test_bad_arrays(tmp_path):
    table: list[tuple[dict[str, Any], str]] = [
        ({"y": Y}, "one of the arrays 'features' and 'x' is needed"),
        ({"x": X[0], "y": Y}, r"x: must be uint8 .* \(rows, height, width.*got uint8 \(6, 6\)"),
        ({"x": X, "y": Y[1:]}, r"y: must have shape \(200,\), one entry for each row of x"),
        ({"x": X, "y": Y - 1}, "y: -1 at row 0; must be a class"),
        ({"x": X, "y": Y, "client": Y / 2}, "client: 0.5 at row 1; must be whole numbers"),
        ({"x": X, "y": Y, "norm": 1.0}, "norm has no effect here: the rows are not features"),
        ({"x": X, "y": Y, "test_x": X[:, 1:], "test_y": Y}, "kind of test_x must be"),
        ({"x": X, "y": Y, "group": Y, "test_x": X, "test_y": Y}, "use of test_group must be"),
    ]
    path = str(tmp_path / "data.npz")
    each_is_refused(table, lambda arrays: read_labelled(npz(tmp_path, **arrays)), repr(path))


BYTES = RNG.integers(-127, 128, (200, 5)).astype(np.int8)
CLASSES = np.arange(200) % 3


def test_bytes_are_scaled_and_long_rows_shortened(tmp_path):
    data = npz(tmp_path, features=BYTES, scale=0.01, labels=CLASSES, norm=1.5)
    pool = read_labelled(data)
    assert (pool.x.dtype, pool.classes) == (np.float32, 3)
    given = BYTES * 0.01
    length = np.linalg.norm(given, axis=1)
    assert 0 < (length > 1.5).sum() < 200
    expected = given * np.minimum(1, 1.5 / length)[:, None]  # each row by its own norm alone
    np.testing.assert_allclose(pool.x, expected, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(read_labelled(data, 9.0).x, given, rtol=1e-6)
    floats = read_labelled(
        npz(tmp_path, "f.npz", features=given, y=CLASSES, class_names=list("abcd"))
    )
    assert floats.names == ("a", "b", "c", "d")
    np.testing.assert_allclose(floats.x, given, rtol=1e-6)


def test_the_source_s_test_rows_stay_test_rows(tmp_path):
    group = np.array(["w", "m"])[np.arange(200) % 2]
    arrays: dict[str, Any] = {
        "features": BYTES,
        "scale": 1.0,
        "labels": CLASSES,
        "subject": np.arange(200),
    }
    arrays |= {f"test_{key}": arrays[key][:40] for key in ("features", "labels")}
    arrays |= {"group": group, "test_group": group[:40], "test_fog_3": -BYTES[:40]}
    path = npz(tmp_path, **arrays)
    made = split(read_labelled(path), TrainConfig(data=path, clients=4, partition="iid", seed=3))
    assert (made.classes, made.shape) == (3, (5,))
    ids = {part: made.parts[part].subject for part in ("train", "calibration")}
    ids["test"] = np.arange(40)
    assert sorted([*ids["train"], *ids["calibration"]]) == list(range(200))
    np.testing.assert_array_equal(  # Algorithm 1's tenth
        np.sort(ids["calibration"]), np.flatnonzero(held_out(np.arange(200), 3, 0.1))
    )
    for part in PARTS:
        np.testing.assert_array_equal(made.parts[part].x, BYTES[ids[part]])
        np.testing.assert_array_equal(made.parts[part].y, ids[part] % 3)
        np.testing.assert_array_equal(made.parts[part].group, group[ids[part]])
