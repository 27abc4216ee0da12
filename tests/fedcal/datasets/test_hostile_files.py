"""Small files that need hours or gigabytes are refused by what they declare."""

import gzip
import time
import tracemalloc

import numpy as np
import pytest

from fedcal import datasets
from fedcal.core.checks import InputError
from fedcal.run.config import load_config, parse_setting
from fedcal.sites.study_file import Study
from fedcal.storage import npz

PARTS = 20_000
DEEP = (
    ".".join(["a"] * PARTS) + " = 1",
    " . ".join(['"a.\\"\'"'] * PARTS) + " = 1",
    f"[{'.'.join(['a'] * PARTS)}]",
    f"x = {{b = '\\', {'.'.join(['a'] * PARTS)} = 1}}",
    f'x = """b"""" # "\n{".".join(["a"] * PARTS)} = 1',
    f"x = {'[' * PARTS}",
    f"x = {'{a=' * PARTS}",
)
READERS = (Study.read, lambda path: load_config(path, {}))


def refused_soon(said, call, *given, mib=300):
    """`call` refuses what is given in one line, within seconds and so many MiB."""
    tracemalloc.start()
    start = time.monotonic()
    with pytest.raises(InputError, match=said) as caught:
        call(*given)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert time.monotonic() - start < 10
    assert peak < mib * 2**20
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("read", READERS)
def test_toml_is_bounded_before_it_is_parsed(read, tmp_path):
    path = tmp_path / "x.toml"
    for text in DEEP:
        path.write_text(text, "utf-8")
        refused_soon(f"{path}.* nested too deeply", read, path)
    path.write_bytes(b"#" * (2**25 + 1))
    refused_soon(f"the bytes of {path} must be", read, path)


def test_a_sealed_study_is_bounded_too(tmp_path):
    refused_soon("nested too deeply", Study.from_text, DEEP[0])
    refused_soon(r"must be .* 1048576\], got 1048577", Study.from_text, "#" * (2**20 + 1))
    kind, value = parse_setting(f"x={'[' * PARTS}")
    assert (kind, type(value)) == ("x", str)


def table(columns, rows=2):
    return "\n".join([",".join(columns), *[",".join("0" for _ in columns)] * rows])


def test_too_many_columns_and_classes(tmp_path):
    many = [f"prob_{j}" for j in range(200_000)]
    for names in (["label", *many], ["label", "score", *map("x{}".format, range(200_000))]):
        (tmp_path / "x.csv").write_text(table(names), "utf-8")
        refused_soon(
            r"number of columns must be .* 100000\], got 20\d{4}", datasets.load, tmp_path / "x.csv"
        )
    wide = np.zeros((1, 3_000_000), np.int8)
    np.savez_compressed(tmp_path / "x.npz", logits=wide, labels=[2_999_999])
    np.savez(tmp_path / "y.npz", logits=wide, labels=[2_999_999], client=[0])
    refused_soon("2 to 100,000 classes, got", datasets.load, tmp_path / "x.npz")
    refused_soon("2 to 100,000 classes, got", datasets.in_blocks, tmp_path / "y.npz")
    refused_soon("2 to 100,000 classes, got", lambda: datasets.from_arrays(logits=wide, labels=[0]))
    pa = pytest.importorskip("pyarrow.parquet")
    from pyarrow import table as arrow

    pa.write_table(arrow({"label": [0], "logits": [wide[0]]}), tmp_path / "x.parquet")
    refused_soon("2 to 100,000 classes, got", datasets.load, tmp_path / "x.parquet")


def test_a_table_that_unpacks_too_far_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(npz, "_BOMB_BYTES", 2**22)
    with gzip.open(tmp_path / "x.csv.gz", "wt", 9) as file:
        file.write(table(["label", *(f"logit_{j}" for j in range(49))], 60_000))
    refused_soon("more than 4 MiB", datasets.load, tmp_path / "x.csv.gz")


def test_a_parquet_file_that_unpacks_too_far_is_refused(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    rows = 12_000_000
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), pa.array([0.5]))
    label = pa.DictionaryArray.from_arrays(column.indices, pa.array([1]))
    flat = {"label": label, "client": label, "score": column}
    pq.write_table(pa.table(flat), tmp_path / "x.parquet", row_group_size=rows)
    assert (tmp_path / "x.parquet").stat().st_size < 2**20
    refused_soon("more than 256 MiB", datasets.load, tmp_path / "x.parquet")
    wide = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(40_000_000)), 20_000)
    pq.write_table(
        pa.table({"label": np.zeros(len(wide), int), "logits": wide}), tmp_path / "y.parquet"
    )
    refused_soon("more than 256 MiB", datasets.load, tmp_path / "y.parquet")
