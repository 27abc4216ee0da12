"""The base models: shapes, determinism, and that they learn what they are for."""

import numpy as np
import pytest
import torch

from fedcal.core.errors import InputError
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
