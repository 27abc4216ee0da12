"""The other makers of shipped sets: what they keep of their sources, and what they refuse."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcal.experiments.research.shipped import adult, adult_features, mmlu, mnist_features
from fedcal.experiments.research.shipped.adult import COLUMNS
from fedcal.experiments.research.shipped.image_features import RandomFilters


def census(path: Path, rows: int, seed: int, stop: str) -> Path:
    """Rows like UCI's; who earns more follows from age and years at school."""
    rng = np.random.default_rng(seed)
    lines = ["|1x3 Cross validator"] if stop else []
    for _ in range(rows):
        age, years = int(rng.integers(18, 80)), int(rng.integers(1, 17))
        rich = age / 20 + years / 4 + rng.normal(0, 1) > 5
        values = dict.fromkeys(COLUMNS, "0") | {
            **{"age": str(age), "education-num": str(years), "workclass": "?"},
            **{"race": rng.choice(["White", "Black"]), "sex": rng.choice(["Male", "Female"])},
            "hours-per-week": str(int(rng.integers(10, 60))),
            **{name: str(int(rng.integers(0, 3) * 900)) for name in adult.SKEWED},
            "income": (">50K" if rich else "<=50K") + stop,
        }
        lines.append(", ".join(values.values()))
    text = "\n".join([*lines, ""]).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def test_adult_keeps_the_test_rows_and_features_follow_from_public_ranges(tmp_path, capsys):
    train = census(tmp_path / "adult.data.gz", 300, 0, "")
    test = census(tmp_path / "adult.test", 120, 1, ".")
    out, table = tmp_path / "out.npz", adult.read(test)

    def made(module: Any, test: Path) -> dict[str, Any]:
        out.unlink(missing_ok=True)
        module.main(["--train", str(train), "--test", str(test), "--out", str(out)])
        assert "Female, Black" in capsys.readouterr().out
        with np.load(out) as arrays:
            return dict(arrays)

    arrays = made(adult, test)
    assert len(arrays["log_odds"]) == 120
    right = (arrays["log_odds"] > 0) == (arrays["labels"] == 1)
    assert right.mean() > 0.8
    names = arrays["group_names"].tolist()
    assert names == ["Female, Black", "Female, White", "Male, Black", "Male, White"]
    assert names[arrays["group"][7]] == f"{table['sex'][7]}, {table['race'][7]}"
    arrays = made(adult_features, test)
    kept = arrays["test_features"] * arrays["scale"]
    first = {name: column[:1] for name, column in table.items()}
    alone = adult_features.features(first)  # a row by itself: nothing is learnt of the others
    np.testing.assert_allclose(kept[:1], alone, atol=adult_features.STEP)
    assert (np.linalg.norm(kept, axis=1) <= 1).all()
    age = (2 * float(table["age"][0]) - 17 - 90) / (90 - 17) / np.sqrt(10)
    assert alone[0, 0] == pytest.approx(age)
    for text in ("", "1, 2, 3\n", "x, " + ", ".join("0" * 14) + "\n"):
        (tmp_path / "bad").write_text(text)
        with pytest.raises(SystemExit) as left:
            made(adult, tmp_path / "bad")
        assert left.value.code == 2
        assert capsys.readouterr().err.count("\n") == 1
        assert not out.exists()


def test_features_of_mnist(tmp_path, capsys):
    rng = np.random.default_rng(0)
    for name, rows in (("train", 60), ("test", 50)):
        x = rng.integers(0, 256, (rows, 10, 10), dtype=np.uint8)
        np.savez(tmp_path / name, x=x, y=np.arange(rows) % 10)
    files = [str(tmp_path / f"{name}.npz") for name in ("train", "test", "out")]
    mnist_features.main(["--train", files[0], "--test", files[1], "--out", files[2]])
    assert "jpeg_compression_3" in capsys.readouterr().out
    with np.load(files[2]) as arrays, np.load(files[1]) as images:
        kept = arrays["test_features"] * arrays["scale"]
        seen = RandomFilters().features(images["x"][::5])
        np.testing.assert_array_equal(arrays["test_labels"], np.arange(50)[::5] % 10)
    seen /= np.linalg.norm(seen, axis=1, keepdims=True)
    np.testing.assert_allclose(kept, seen, atol=mnist_features.STEP)
    assert (np.linalg.norm(kept, axis=1) <= 1).all()


def test_mmlu_keeps_the_first_prompt(tmp_path, capsys):
    probs = np.random.default_rng(0).dirichlet(np.ones(4), (2, 30)).astype(np.float32)
    given = {"probs": probs, "labels": np.arange(30) % 4, "subject": np.arange(30) % 3}
    source, out = tmp_path / "scores.npz", tmp_path / "out.npz"
    np.savez(source, **given, subjects=np.array(["a", "b", "c"]))
    mmlu.main(["--scores", str(source), "--out", str(out)])
    with np.load(out) as arrays:
        logits = arrays["logits"].astype(float)
        found = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        assert arrays["client"].tolist() == given["subject"].tolist()
    np.testing.assert_allclose(found, probs[0], atol=2e-3)
