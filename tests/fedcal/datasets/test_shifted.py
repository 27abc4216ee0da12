"""The shipped set under domain shift: its variants, its names, how it is packed."""

from pathlib import Path

import numpy as np
from refusals import each_is_refused, refused

import fedcal.datasets as datasets
from fedcal.datasets import catalogue, is_shipped, load, shifted
from fedcal.datasets._shipped import STEPS, key_of, packed, unpacked
from fedcal.experiments.research.corruptions import CORRUPTIONS

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


def test_every_variant_loads_with_the_same_labels():
    usual = load("mnist-shift")
    np.testing.assert_array_equal(usual.scores, load("mnist-shift:fog:5").scores)
    for corruption, severity in shifted():
        name = f"mnist-shift:{corruption}:{severity}"
        data = load(name)
        assert (data.name, data.input, data.test_scores) == (name, "logits", None)
        assert (data.scores.shape, data.classes) == ((5000, 10), 10)
        assert (data.scores.max(axis=1) == 0).all()
        np.testing.assert_array_equal(data.labels, usual.labels)
        assert is_shipped(name)


def test_an_unknown_variant_gets_one_line_with_what_there_is():
    words = f"mnist-shift:none:0.*severity 1 or 5.*{', '.join(CORRUPTIONS)}"
    names = ("fog", "fog:2", "fogg:5", "fog:05", "fog:5:1", "none", "none:5", "", ":", "x" * 5000)
    each_is_refused([(f"mnist-shift:{name}", words) for name in names], load, most=800)


def test_only_sets_with_variants_take_a_colon():
    refused("unknown data set 'resnet110-cifar10:fog:5'", load, "resnet110-cifar10:fog:5")
    refused("allowed: mnist-shift", shifted, "resnet110-cifar10")
    assert [e.name for e in catalogue() if e.variants] == ["mnist-shift"]


def test_shipped_names_and_paths_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in ("mnist-shift.npz", "./mnist-shift:fog:5", "mnist-shift-fog", "mnist", ""):
        assert not is_shipped(path)
    Path("mnist-shift:fog:5").write_text("a file of this name")
    assert len(load("mnist-shift:fog:5").scores) == 5000
    refused("unknown kind of file", load, Path.cwd() / "mnist-shift:fog:5")


def test_packing_keeps_the_order_and_is_fine_near_the_top():
    logits = np.random.default_rng(0).normal(scale=8, size=(500, 10))
    back = unpacked(packed(logits))
    depth = logits.max(axis=1, keepdims=True) - logits
    # half a step of sqrt(depth), that is sqrt(depth) / STEPS + 1 / (4 STEPS**2) of depth
    assert (np.abs(-back - depth) <= np.sqrt(depth) / STEPS + 1 / (4 * STEPS**2) + 1e-12).all()
    order = np.argsort(logits, axis=1)
    assert (np.diff(np.take_along_axis(back, order, axis=1)) >= 0).all()
    assert (back.max(axis=1) == 0).all()


def test_packing_cuts_what_is_far_below():
    assert packed([[0.0, -1e100, 1.0]]).tolist() == [[STEPS, 255, 0]]
