"""Parquet: columns as in text, lists of scores, types, and files that are damaged."""

import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from refusals import each_is_refused

from fedcal.core.checks import InputError
from fedcal.datasets import _tables as _parquet
from fedcal.datasets import load

Z = np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0, 8.0], [1.0, 0.0, 1.0]])
Y = np.array([0, 2, 1, 2])


def write(folder: Path, columns: dict[str, Any], **options: Any) -> Path:
    path = folder / "x.parquet"
    pq.write_table(pa.table(columns), path, **options)
    return path


def lists(kind: pa.DataType, x: np.ndarray = Z) -> pa.Array:
    return pa.array(x.tolist(), kind)


F64 = pa.float64()
SCORES: dict[str, dict[str, Any]] = {
    "columns": {f"logit_{j}": Z[:, j] for j in (2, 0, 1)},
    "columns of many types": {
        "logit_0": pa.array(Z[:, 0].astype(np.int8)),
        "logit_1": pa.array(Z[:, 1].astype(np.float16)),
        "logit_2": pa.array([decimal.Decimal(int(v)) for v in Z[:, 2]], pa.decimal128(5, 1)),
    },
    "categories": {f"logit_{j}": pa.array(Z[:, j]).dictionary_encode() for j in range(3)},
    "list": {"logits": lists(pa.list_(F64))},
    "float32 list": {"logits": lists(pa.list_(pa.float32()))},
    "large list": {"logits": lists(pa.large_list(F64))},
    "fixed-size list": {"logits": lists(pa.list_(F64, 3))},
    "list of whole numbers": {"logits": lists(pa.list_(pa.int16()), Z.astype(int))},
    "tensor": {
        "logits": pa.ExtensionArray.from_storage(
            pa.fixed_shape_tensor(F64, [3]), lists(pa.list_(F64, 3))
        )
    },
}


@pytest.mark.parametrize("scores", SCORES.values(), ids=SCORES.keys())
@pytest.mark.parametrize("batch", [1, 3, 2**14])
def test_scores_of_any_shape(scores, batch, tmp_path, monkeypatch):
    monkeypatch.setattr(_parquet, "BATCH", batch)
    data = load(write(tmp_path, {"label": Y} | scores))
    assert (data.name, data.input) == ("x.parquet", "logits")
    np.testing.assert_array_equal(data.scores, Z)
    assert data.scores.flags.c_contiguous
    np.testing.assert_array_equal(data.labels, Y)
    assert data.client is None
    assert data.test_scores is None


HOLED = pa.array([[1.0, 2.0], [1.0, None], [0.0, 1.0], [0.0, 1.0]])
RAGGED = [[1.0, 2.0], [1.0, 2.0], [0.0], [0.0, 1.0]]
L = SCORES["list"]
BAD: list[Any] = [
    (
        {"label": Y},
        "no score columns among 'label'; allowed: label, .* or a list in logits or probs",
    ),
    (L | {"label": Y, "weight": Y}, "unknown column 'weight'; allowed"),
    ({"label": Y, "logit_0": Y, "logit_2": Y}, "column 'logit_1' is missing"),
    (L | {"label": Y, "logit_0": Y}, "logit and logits columns together"),
    ({"label": Y, "logits": RAGGED}, "column 'logits' .*row 2"),
    ({"label": Y, "logits": HOLED}, "column 'logits' holds null at row 1"),
    ({"label": Y, "score": [0.5, None, 0.5, 1]}, "column 'score' holds null at row 1"),
    (L | {"label": [0, 1, None, 1]}, "column 'label' holds null at row 2"),
    (
        L | {"label": Y, "client": ["a", None, "b", "c"]},
        "client: missing in 1 of 4 rows, the first is row 1",
    ),
    ({"label": Y, "score": [0.5, 1, np.nan, 1]}, r"probs: nan at row 2; .* must lie in \[0, 1\]"),
    ({"label": Y, "score": list("abcd")}, "'score' holds string; must hold numbers"),
    ({"label": Y, "logits": [["a"]] * 4}, "'logits' holds string; must hold numbers"),
    ({"label": Y, "logits": [1.0] * 4}, "holds double; must hold lists of numbers"),
    (L | {"label": Y, "client": [{"a": 1}] * 4}, "'client' holds struct.* or text"),
    (
        L | {"label": Y, "client": ["x" * 257] * 4},
        r"column .client. must be .* got 257",
    ),
    (L | {"label": Y, "split": Y}, "column 'split' holds int64; must hold text"),
    ({"label": pa.array([], F64), "score": pa.array([], F64)}, "number of rows must be"),
]


@pytest.mark.parametrize("batch", [1, 2**14])
def test_bad_columns_are_refused_in_one_line(batch, tmp_path, monkeypatch):
    monkeypatch.setattr(_parquet, "BATCH", batch)
    start = repr(str(tmp_path / "x.parquet"))
    each_is_refused(BAD, lambda columns: load(write(tmp_path, columns)), start=start)


def test_files_that_hold_too_much(tmp_path, monkeypatch):
    path = write(tmp_path, {"label": Y} | SCORES["columns"])
    monkeypatch.setattr(_parquet, "room", lambda _: 4 * 3 * 8 + 4 * 8)
    load(path)
    monkeypatch.setattr(_parquet, "room", lambda _: 4 * 3 * 8 - 1)
    with pytest.raises(InputError, match="more than 0 KiB of numbers"):
        load(path)


@pytest.mark.parametrize("compression", ["none", "snappy"])
def test_damage_never_escapes_as_another_error(compression, tmp_path):
    columns = SCORES["float32 list"] | {"label": Y, "client": list("abca")}
    path = write(tmp_path, columns, compression=compression, write_page_checksum=True)
    content, refused = path.read_bytes(), 0
    changed = [bytearray(content) for _ in content[::3]]
    for place, copy in enumerate(changed):
        copy[3 * place] ^= 0xFF
    all_bent = [*(content[:n] for n in range(0, len(content), 7)), *changed]
    for content in all_bent:
        path.write_bytes(content)
        try:  # a byte that no checksum covers (who wrote it, say) may pass: then nothing changed
            np.testing.assert_array_equal(load(path).scores, Z)
        except InputError as error:
            refused += 1
            assert "\n" not in str(error)  # noqa: PT017
    assert refused > len(all_bent) / 2
