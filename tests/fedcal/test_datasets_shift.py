"""The shipped set under domain shift: its variants, its names, how it is packed."""

from pathlib import Path

import numpy as np
import pytest

import fedcal.datasets as datasets
from fedcal.corruptions import CORRUPTIONS
from fedcal.datasets import catalogue, is_shipped, load, shifted
from fedcal.datasets._shifted import STEPS, key_of, packed, unpacked
from fedcal.errors import InputError
from fedcal.experiments import simulate
from fedcal.metrics import accuracy, ece
from fedcal.numerics import softmax

FILE = Path(datasets.__file__).parent / "mnist-shift.npz"


def test_variants_are_all_corruptions_at_severities_1_and_5_and_the_images_themselves():
    variants = shifted("mnist-shift")
    assert variants == shifted()
    assert variants[0] == ("none", 0)
    assert set(variants) == {("none", 0), *((c, s) for c in CORRUPTIONS for s in (1, 5))}
    assert len(variants) == 31
    with np.load(FILE, allow_pickle=False) as archive:
        assert set(archive) == {"labels", *map(key_of, variants)}
        assert {archive[key].dtype for key in archive} == {np.dtype(np.uint8)}
    assert FILE.stat().st_size < 2**20


@pytest.mark.parametrize("variant", shifted(), ids=key_of)
def test_every_variant_loads_with_the_same_labels(variant):
    name = f"mnist-shift:{variant[0]}:{variant[1]}"
    data = load(name)
    assert data.name == name
    assert (data.input, data.scores.shape, data.classes) == ("logits", (5000, 10), 10)
    assert data.test_scores is None
    assert (data.scores.max(axis=1) == 0).all()
    np.testing.assert_array_equal(data.labels, load("mnist-shift").labels)
    assert is_shipped(name)


def test_the_name_alone_is_fog_of_severity_5():
    np.testing.assert_array_equal(load("mnist-shift").scores, load("mnist-shift:fog:5").scores)
    assert load("mnist-shift").name == "mnist-shift"


def test_the_network_is_accurate_and_overconfident_under_shift():
    clean = load("mnist-shift:none:0")
    assert accuracy(clean.probs, clean.labels) > 0.98
    assert ece(clean.probs, clean.labels) < 0.01
    for corruption in CORRUPTIONS:
        right, gap, sure = {}, {}, {}
        for severity in (1, 5):
            data = load(f"mnist-shift:{corruption}:{severity}")
            right[severity] = accuracy(data.probs, data.labels)
            gap[severity] = ece(data.probs, data.labels)
            sure[severity] = data.probs.max(axis=1).mean()
        assert 0.25 < right[5] < right[1] < 0.99
        assert gap[5] > gap[1]
        assert sure[5] > right[5] + 0.002
        if corruption not in ("contrast", "jpeg_compression"):  # digits bear these
            assert gap[5] > 0.06


@pytest.mark.parametrize(
    "name",
    ["fog", "fog:2", "fogg:5", "fog:05", "fog:5:1", "none", "none:5", "", ":", "fog:", "x" * 5000],
)
def test_an_unknown_variant_gets_one_line_with_what_there_is(name):
    with pytest.raises(InputError, match="severity 1 or 5") as caught:
        load(f"mnist-shift:{name}")
    said = str(caught.value)
    assert "\n" not in said
    assert "mnist-shift:none:0" in said
    assert all(corruption in said for corruption in CORRUPTIONS)
    assert len(said) < 800


def test_only_sets_with_variants_take_a_colon():
    with pytest.raises(InputError, match="unknown data set 'resnet110-cifar10:fog:5'"):
        load("resnet110-cifar10:fog:5")
    with pytest.raises(InputError, match="allowed: mnist-shift"):
        shifted("resnet110-cifar10")
    assert [e.name for e in catalogue() if e.variants] == ["mnist-shift"]


def test_shipped_names_and_paths_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in ("mnist-shift.npz", "./mnist-shift:fog:5", "mnist-shift-fog", "mnist", ""):
        assert not is_shipped(path)
    Path("mnist-shift:fog:5").write_text("a file of this name")
    assert len(load("mnist-shift:fog:5").scores) == 5000
    with pytest.raises(InputError, match="unknown kind of file"):
        load(Path.cwd() / "mnist-shift:fog:5")


def test_simulate_takes_a_variant_and_says_its_name():
    found = simulate("mnist-shift:glass_blur:5", method="pooled-temperature")
    assert found.config.data == "mnist-shift:glass_blur:5"
    assert found.after["ece"] < found.before["ece"] / 2
    assert found.after["accuracy"] == found.before["accuracy"]


# --- how logits are packed --------------------------------------------------------------------


def test_packing_keeps_the_order_and_is_fine_near_the_top():
    logits = np.random.default_rng(0).normal(scale=8, size=(500, 10))
    back = unpacked(packed(logits))
    depth = logits.max(axis=1, keepdims=True) - logits
    # half a step of sqrt(depth), that is sqrt(depth) / STEPS + 1 / (4 STEPS**2) of depth
    assert (np.abs(-back - depth) <= np.sqrt(depth) / STEPS + 1 / (4 * STEPS**2) + 1e-12).all()
    order = np.argsort(logits, axis=1)
    assert (np.diff(np.take_along_axis(back, order, axis=1)) >= 0).all()
    assert (back.max(axis=1) == 0).all()


def test_packing_does_not_move_calibration():
    rng = np.random.default_rng(1)
    logits = rng.normal(scale=4, size=(20_000, 10))
    labels = np.array([rng.choice(10, p=p) for p in softmax(logits / 2)])
    for temperature in (1.0, 2.0):
        exact, kept = (softmax(z / temperature) for z in (logits, unpacked(packed(logits))))
        assert ece(kept, labels) == pytest.approx(ece(exact, labels), abs=1e-3)


def test_packing_cuts_what_is_far_below():
    assert packed([[0.0, -1e100, 1.0]]).tolist() == [[STEPS, 255, 0]]
