"""The exported module as a citizen of PyTorch: gradients, state, types, copies, programs."""

import pytest
from made_up import scored

torch = pytest.importorskip("torch")

from fedcal import export  # noqa: E402
from fedcal.calibrators import BBQ, Calibrator, WeightedBinning  # noqa: E402
from fedcal.core.checks import InputError  # noqa: E402
from fedcal.export.torch_modules import MODULES  # noqa: E402

SCORES, LABELS = scored(3, 50, 1, 3.0, 1.5)
ALL: dict[str, Calibrator] = {cls.kind: cls().fit(SCORES, LABELS) for cls in MODULES}
ALL["changed"] = WeightedBinning(BBQ().fit(SCORES, LABELS), [0.2, 0.5, 0.8], "changed")
every_one = pytest.mark.parametrize("calibrator", ALL.values(), ids=ALL.keys())
LOGITS = torch.from_numpy(SCORES)


def same(got: torch.Tensor, want: torch.Tensor, calibrator: Calibrator) -> bool:
    """Equal; a matrix product may round otherwise for another number of rows."""
    if calibrator.kind not in ("matrix", "order-preserving-mlp"):
        return torch.equal(got, want)
    return got.shape == want.shape and torch.allclose(got, want, rtol=0, atol=1e-15)


@every_one
def test_leading_dimensions_are_free_and_classes_are_not(calibrator):
    module = export.to_torch(calibrator)
    want = module(LOGITS)
    for shape in [(5, 10, 3), (1, 50, 1, 3)]:
        assert same(module(LOGITS.reshape(shape)), want.reshape(shape), calibrator)
    assert same(module(LOGITS[0]), want[0], calibrator)
    with pytest.raises(InputError, match="must be 3, got 4"):
        module(torch.zeros(2, 4))


@every_one
def test_softer_types_give_float32_and_wider_ones_stay(calibrator):
    module = export.to_torch(calibrator)
    for given in (torch.float16, torch.bfloat16, torch.int64, torch.float32, torch.float64):
        z = LOGITS.to(given)
        assert module(z).dtype is (given if given is torch.float64 else torch.float32)
        assert torch.allclose(module(z).double(), module(z.double()), atol=1e-6)


@pytest.mark.parametrize("name", ["vector", "order-preserving-vector", "order-preserving-mlp"])
def test_gradients_reach_the_scores(name):
    z = LOGITS[:5].clone().requires_grad_()
    assert torch.autograd.gradcheck(export.to_torch(ALL[name]), (z,))


@every_one
def test_a_program_has_free_rows_from_none_on(calibrator):
    module = export.to_torch(calibrator)
    rows = torch.export.Dim("rows", min=0)
    program = torch.export.export(module, (LOGITS[:2],), dynamic_shapes=({0: rows},)).module()
    for n in (0, 1, 50):
        assert same(program(LOGITS[:n]), module(LOGITS[:n]), calibrator)
