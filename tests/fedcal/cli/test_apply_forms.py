"""`fedcal apply` reads what `simulate` reads, in any form, and gives rows back as they stood."""

import csv
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcal import datasets, simulate
from fedcal.calibrators import TemperatureScaling
from fedcal.cli.main import exit_code_of

N = 40
RNG = np.random.default_rng(3)
LABELS = RNG.integers(0, 3, N)
LOGITS = RNG.normal(size=(N, 3)) + 2 * np.eye(3)[LABELS]
TEST = RNG.permutation(N) < 15  # not behind the others
IDS = {
    "client": np.array(["north", "south"])[np.arange(N) % 2],
    "subject": np.arange(N) // 2 + 1000,
    "group": np.array(["a", "b"])[np.arange(N) // 4 % 2],
}
COLUMNS: dict[str, Any] = {
    **IDS,
    "label": LABELS,
    **{f"logit_{j}": LOGITS[:, j] for j in range(3)},
    "split": np.where(TEST, "test", "train"),
}


def to_csv(path: Path) -> Path:
    opened: Any = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", newline="") as file:
        lines = zip(*(column.tolist() for column in COLUMNS.values()), strict=True)
        csv.writer(file).writerows([[*COLUMNS], *lines])
    return path


def to_parquet(path: Path) -> Path:
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    table = pyarrow.table({name: column.tolist() for name, column in COLUMNS.items()})
    parquet.write_table(table, path)
    return path


FORMS: dict[str, Callable[[Path], Path]] = {
    "rows.csv": to_csv,
    "rows.csv.gz": to_csv,
    "rows.parquet": to_parquet,
}


def applied(folder: Path, data: Path | str, out: str) -> Path:
    words = ["apply", "--calibrator", str(folder / "c.npz"), "--data", str(data)]
    assert exit_code_of([*words, "--out", str(folder / out), "--overwrite"]) == 0
    return folder / out


@pytest.mark.parametrize("form", FORMS)
def test_rows_come_back_in_their_order_with_their_ids(form, tmp_path, capsys):
    data = FORMS[form](tmp_path / form)
    calibrator = TemperatureScaling().fit(LOGITS, LABELS)
    calibrator.save(tmp_path / "c.npz")
    assert simulate(data, method="pooled-temperature", clients=2).test is not None
    want = calibrator.predict_proba(LOGITS)
    np.testing.assert_allclose(np.load(applied(tmp_path, data, "p.npy")), want)
    # metrics are of the test rows, wherever they stand
    said = capsys.readouterr().out
    accuracy = (LOGITS[TEST].argmax(axis=1) == LABELS[TEST]).mean()
    assert "metrics: the 15 of its test part" in said
    assert f"before: accuracy % {100 * accuracy:.2f}" in said
    with np.load(applied(tmp_path, data, "p.npz")) as found:
        np.testing.assert_allclose(found["probs"], want)
        np.testing.assert_array_equal(found["labels"], LABELS)
        for name, ids in IDS.items():
            np.testing.assert_array_equal(found[name], ids)
    for out in ("p.csv", "p.parquet"):
        back = datasets.load(applied(tmp_path, data, out))  # a data file again
        np.testing.assert_allclose(back.probs, want)
        np.testing.assert_array_equal(back.labels, LABELS)
        assert back.client is not None
        assert [back.client_names[k] for k in back.client] == IDS["client"].tolist()
        np.testing.assert_array_equal(back.subject, np.arange(N) // 2)
        assert back.group_names == ("a", "b")
