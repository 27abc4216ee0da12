"""Training by FedAvg: what is learnt, what is written, what is the same after an interrupt."""

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from refusals import each_is_refused, refused

from fedcal import simulate
from fedcal.cli.main import exit_code_of
from fedcal.core.checks import Interrupted, RoundFailed
from fedcal.datasets import load
from fedcal.run.training import Training, train
from fedcal.run.training_config import TrainConfig, merged
from fedcal.storage.artifact import CHECKPOINT
from fedcal.storage.atomic import locked
from fedcal.strategies.server.checkpoint import Checkpoint
from fedcal.training.networks import OWN, load_model, register_network


def stripes(rows: int, classes: int = 3, size: int = 8, seed: int = 0) -> dict[str, np.ndarray]:
    """Images whose class is where a bright stripe lies, under noise."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, rows)
    x = rng.integers(0, 120, (rows, size, size))
    for row, label in enumerate(y):
        x[row, :, label * 2 : label * 2 + 2] += 100
    return {"x": x.astype(np.uint8), "y": y.astype(np.uint8)}


class Net(torch.nn.Sequential):
    def __init__(self) -> None:
        super().__init__(torch.nn.Flatten(), torch.nn.Linear(64, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = super().forward(x.float() / 255 - 0.5)
        return logits


NET = register_network(Net)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    path = tmp_path_factory.mktemp("images") / "stripes.npz"
    np.savez(path, **stripes(300))
    return path


def small(images: Path, **changed: Any) -> TrainConfig:
    values = {"data": str(images), "clients": 6, "partition": "iid", "rounds": 3}
    values |= {"model": NET, "method": "fedavg"}
    values |= {"sampling_rate": 0.5, "batch_size": 8, "lr": 0.1}
    return merged(values, changed)


def same(a: Training, b: Training) -> bool:
    weights = np.array_equal(a.model.w, b.model.w) and a.history == b.history
    return weights and np.array_equal(a.logits["test"], b.logits["test"])


def test_a_model_is_learnt_and_its_logits_can_be_calibrated(images, tmp_path):
    out, seen = tmp_path / "out", list[tuple[int, int]]()
    config = small(images, rounds=7)
    training = train(config, out=out, progress=lambda *done: seen.append(done))
    assert training.metrics["accuracy"] > 0.8  # three classes: chance is a third
    names = {"config.toml", "logits.npz", "model.pt", "model.npz", "report.html", "training.json"}
    assert names < {p.name for p in out.iterdir()}
    data = load(out / "logits.npz")
    assert (data.classes, data.client_names) == (3, tuple("012345"))
    assert (len(data.scores), len(data.test_scores)) == (20, 32)
    record = json.loads((out / "training.json").read_text())
    assert record["rows"] == {"train": 248, "calibration": 20, "test": 32}
    assert record["test"]["accuracy"] == training.metrics["accuracy"]
    result = simulate(str(out / "logits.npz"), partition="natural", method="fedtemp")
    assert result.before["accuracy"] == training.metrics["accuracy"]
    # each round is reported
    assert seen == [(k, 7) for k in range(1, 8)]
    assert [r["round"] for r in training.history] == [*range(1, 8)]
    # the files hold weights alone
    model = Net()
    model.load_state_dict(torch.load(out / "model.pt", weights_only=True))
    with torch.no_grad():
        logits = model(torch.from_numpy(training.federation.parts["test"].x)).numpy()
    np.testing.assert_allclose(logits, training.logits["test"], atol=1e-5)


def interrupted(
    config: TrainConfig, out: Path | None, after: int, kind: type[BaseException]
) -> None:
    def stop(done: int, total: int) -> None:
        if done == after:
            raise kind

    train(config, out=out, progress=stop)


def test_an_interrupted_training_goes_on_as_if_nothing_was(images, tmp_path):
    config, out = small(images, rounds=4, set={"server_lr": 0.5}), tmp_path / "out"
    with pytest.raises(Interrupted, match=r"what was done is kept; continue: .* --resume"):
        interrupted(config, out, 2, KeyboardInterrupt)
    assert [p.name for p in out.iterdir()] == [CHECKPOINT]
    assert same(train(config), train(out=out, resume=True))
    assert not (out / CHECKPOINT).exists()
    with pytest.raises(KeyboardInterrupt) as stopped:
        interrupted(config, None, 1, KeyboardInterrupt)
    assert not isinstance(stopped.value, Interrupted)  # without a folder nothing is kept


def test_a_training_that_is_killed_goes_on_from_its_last_checkpoint(images, tmp_path, monkeypatch):
    monkeypatch.setattr("fedcal.run.training.EVERY", 2)
    config, out = small(images, rounds=4), tmp_path / "killed"
    with pytest.raises(SystemExit):
        interrupted(config, out, 3, SystemExit)
    state = Checkpoint.load(out).state
    assert state is not None
    assert len(state["losses"]) == 2
    assert same(train(config), train(out=out, resume=True))


def test_what_cannot_be_resumed(images, tmp_path):
    private = {"method": "fedsgd", "epsilon": 4.0, "unit": "example", "rounds": 3, "lr": 0.1}
    given = {"data": str(images), "clients": 6, "partition": "iid", "model": NET}
    config, out = merged(given, private), tmp_path / "out"
    resumed: Any = partial(train, out=out, resume=True)
    refused(r"nothing to resume in .*: there is no checkpoint", resumed)
    with pytest.raises(Interrupted):
        interrupted(config, out, 2, KeyboardInterrupt)
    refused("holds an unfinished training: continue with --resume", train, config, out=out)
    before = (out / CHECKPOINT).read_bytes()
    table: list[tuple[dict[str, Any], str]] = [
        ({"lr": 0.2}, "the lr with --resume must be 0.1, got 0.2"),
        ({"epsilon": math.inf}, r"epsilon with --resume must be 4.0, got inf"),
    ]
    each_is_refused(table, lambda options: resumed(**options))
    assert (out / CHECKPOINT).read_bytes() == before
    np.savez(images, **stripes(300, seed=1))
    refused("other rows than when the training began", resumed)
    np.savez(images, **stripes(300))
    resumed()
    refused("the training there is finished", resumed)
    (out / CHECKPOINT).write_bytes(b"PK but no more")
    refused("is damaged", resumed)


def test_a_training_that_diverges_says_so_and_writes_nothing(images, tmp_path):
    with pytest.raises(RoundFailed, match=r"diverged.*lower --lr"):
        train(small(images, lr=1e12), out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def clusters(rows: int = 300) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, rows)
    return (rng.normal(0, 0.3, (rows, 5)) + np.eye(3, 5)[y]).astype(np.float32), y


FEDAVG: dict[str, Any] = {"method": "fedavg", "sampling_rate": 1.0, "lr": 0.5}
FEDSGD: dict[str, Any] = {"method": "fedsgd", "epsilon": 30.0}
DP_FEDAVG: dict[str, Any] = {"method": "dp-fedavg", "unit": "user", "lr": 0.5}
PAIRS = [
    *(("softmax", FEDAVG), ("mlp", FEDSGD), ("own", FEDSGD)),
    *(("mlp:32x16", DP_FEDAVG), ("own", FEDAVG)),
]


@pytest.mark.parametrize(("model", "how"), PAIRS)
def test_every_method_trains_features(model, how):
    own = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
    given: dict[str, Any] = {"clients": 3, "partition": "iid", "rounds": 30, **how}
    training = train(data=clusters(), model=own if model == "own" else model, **given)
    assert training.metrics["accuracy"] > 0.8
    assert training.config.data == "rows in memory"
    own_code = any("user's own" in line for line in training.privacy["more"])
    assert own_code == (model == "own" and "epsilon" in how)


def test_a_module_of_ones_own_from_a_file(tmp_path, monkeypatch, capsys):
    """Command, folder, resume: the name is enough where the user gives it."""
    text = "from torch import nn\nclass Net(nn.Sequential):\n    def __init__(self):\n"
    text += "        super().__init__(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))\n"
    (tmp_path / "my_nets.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    x, y = clusters()
    np.savez("rows.npz", features=x, labels=y)
    options = "--epsilon 30 --clients 3 --partition iid --rounds 5"
    command = f"train --data rows.npz --model my_nets:Net {options}".split()
    assert exit_code_of([*command, "--out", "out"]) == 0
    assert 'model = "my_nets:Net"' in Path("out/config.toml").read_text()
    assert exit_code_of([*command, "--engine", "ray"]) == 2
    assert exit_code_of(["train", "--config", "out/config.toml", "--out", "again"]) == 0
    assert Path("out/model.npz").read_bytes() == Path("again/model.npz").read_bytes()
    assert "the engine of a model of your own must be 'inline'" in capsys.readouterr().err
    monkeypatch.delitem(OWN, "my_nets:Net")
    refused("is a user's own module, and its name alone imports no", load_model, "out/model.npz")


def test_the_command(images, tmp_path, capsys):
    out, options = tmp_path / "out", ["--clients", "6", "--partition", "iid", "--rounds", "2"]
    command = ["train", "--data", str(images), *options, "--method", "fedavg", "--model", NET]
    assert exit_code_of([*command, "--lr", "0.1", "--out", str(out)]) == 0
    shown = capsys.readouterr()
    assert "fedcal simulate --data" in shown.out
    assert all(line.startswith("fedcal: ") for line in shown.err.splitlines())
    assert exit_code_of([*command, "--lr", "0.1", "--json"]) == 0
    record = json.loads((out / "training.json").read_text())
    assert json.loads(capsys.readouterr().out)["rounds"] == record["rounds"]
    assert exit_code_of([*command, "--set", "shape=8"]) == 2
    assert "shape has no effect here: the shape of the rows says it" in capsys.readouterr().err


def test_two_trainings_never_share_a_folder(tmp_path):
    """Both would release the round that is open."""
    config: dict[str, Any] = {"data": "adult-features", "epsilon": 8.0, "rounds": 1}
    with locked(tmp_path / "lock", "not reached"):
        refused("another training", train, out=tmp_path, **config)
