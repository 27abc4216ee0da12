"""The base models: shapes, determinism, and that they learn what they are for."""

import numpy as np
import pytest
import torch

from fedcal.errors import InputError
from fedcal.experiments.training.run import train
from fedcal.training.torch_models import as_input, build


def test_image_models_take_images_as_they_lie():
    rng = np.random.default_rng(0)
    for model, shape in (("cnn", (12, 12)), ("cnn", (9, 12, 3)), ("resnet18", (8, 9, 3))):
        rows = rng.integers(0, 256, (2, *shape), dtype=np.uint8)
        net = build(model, shape, 5, seed=0).eval()
        with torch.no_grad():
            logits = net(as_input(rows))
            scaled = net(as_input((rows / 127.5 - 1).astype(np.float32)))
        assert logits.shape == (2, 5)
        torch.testing.assert_close(logits, scaled, atol=1e-4, rtol=1e-4)
    with pytest.raises(InputError, match="6 x 6 are too small for the model resnet18"):
        build("resnet18", (6, 6), 4, 0)


def test_the_lstm_reads_in_order():
    net = build("lstm", (80,), 80, seed=0).eval()
    rows = np.random.default_rng(0).integers(0, 80, (1, 80), dtype=np.uint8)
    with torch.no_grad():
        one, other = net(as_input(rows)), net(as_input(rows[:, ::-1].copy()))
    assert one.shape == (1, 80)
    assert not torch.allclose(one, other)


def test_weights_follow_from_the_seed_and_are_all_that_is_averaged():
    for model, shape, parameters in (
        ("cnn", (28, 28), 215_370),
        ("resnet18", (8, 8, 3), 11_173_962),
        ("lstm", (80,), 801_370),
    ):
        a, again, other = (build(model, shape, 10, seed) for seed in (1, 1, 2))
        assert sum(p.numel() for p in a.parameters()) == parameters
        assert list(a.state_dict()) == [name for name, _ in a.named_parameters()]
        assert all(torch.equal(v, again.state_dict()[k]) for k, v in a.state_dict().items())
        assert any(not torch.equal(v, other.state_dict()[k]) for k, v in a.state_dict().items())


def test_a_row_s_logits_do_not_depend_on_the_others():
    # GroupNorm, not BatchNorm: nothing of a batch leaks into a row
    net = build("resnet18", (8, 8), 3, seed=0).train()
    rows = torch.rand(4, 1, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(net(rows)[:1], net(rows[:1]), atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_resnet18_learns_under_label_skew(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 400)  # 40 of them for testing: one of 3 is below 0.7 by 4.9 std
    x = rng.integers(0, 120, (400, 8, 8, 3))
    for row, label in enumerate(y):
        x[row, 2 * label : 2 * label + 2, :, label] += 120
    data = tmp_path / "images.npz"
    np.savez(data, x=x.astype(np.uint8), y=y)
    options = {"clients": 2, "partition": "dirichlet:1", "rounds": 6, "lr": 0.01}
    training = train(data=str(data), model="resnet18", sampling_rate=1.0, batch_size=8, **options)
    assert training.metrics["accuracy"] > 0.7  # three classes


@pytest.mark.slow
def test_the_lstm_learns_what_follows(tmp_path):
    lines = ["role\tline", *(f"{role}\t{'abcd' * 60}" for role in ("HAMLET", "GHOST"))]
    data = tmp_path / "play.tsv"
    data.write_text("\n".join(lines))
    options = {"rounds": 12, "lr": 0.5, "evaluate_every": 2}
    training = train(data=str(data), model="lstm", sampling_rate=1.0, batch_size=8, **options)
    assert training.metrics["accuracy"] > 0.6  # four characters, equally frequent
