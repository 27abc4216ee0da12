"""The other makers of shipped sets: what they keep of their sources, and what they refuse."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from fedcal.experiments.shipped import adult, mmlu
from fedcal.experiments.shipped.adult import COLUMNS


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


def test_adult_keeps_the_test_rows_and_their_groups(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = census(tmp_path / "adult.data.gz", 300, 0, "")
    test = census(tmp_path / "adult.test", 120, 1, ".")
    out = tmp_path / "out.npz"
    adult.main(["--train", str(train), "--test", str(test), "--out", str(out)])
    with np.load(out) as arrays:
        assert len(arrays["log_odds"]) == 120
        right = (arrays["log_odds"] > 0) == (arrays["labels"] == 1)
        assert right.mean() > 0.8
        names = arrays["group_names"].tolist()
        assert names == ["Female, Black", "Female, White", "Male, Black", "Male, White"]
        table = adult.read(test)
        assert names[arrays["group"][7]] == f"{table['sex'][7]}, {table['race'][7]}"
    assert "Female, Black" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "1, 2, 3\n", "x, " + ", ".join("0" * 14) + "\n"])
def test_a_file_that_is_not_adult_is_one_line(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = census(tmp_path / "good", 9, 0, ""), tmp_path / "bad"
    bad.write_text(text)
    with pytest.raises(SystemExit) as left:
        adult.main(["--train", str(good), "--test", str(bad), "--out", str(tmp_path / "out")])
    assert left.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_mmlu_keeps_the_first_prompt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    np.savez(source, **given)
    with pytest.raises(SystemExit):
        mmlu.main(["--scores", str(source), "--out", str(out)])
    assert "'subjects' is missing" in capsys.readouterr().err
