"""Files of rows: what is read, and what is refused: bad, damaged, hostile or too large."""

import decimal
import struct
import time
import tracemalloc
import zipfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from refusals import each_is_refused, refused

from fedcal.core.checks import InputError
from fedcal.datasets import Dataset, _tables, in_blocks, load
from fedcal.datasets.site_csv import Reading, read_site_csv
from fedcal.run.config import parse_setting
from fedcal.sites.study_file import Study
from fedcal.storage import npz

Z = np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0, 8.0], [1.0, 0.0, 1.0]])
Y = np.array([0, 2, 1, 2])

# --- npz -----------------------------------------------------------------------------------


def npy(shape: object, descr: object = "<f8", data: bytes = b"", version: int = 1) -> bytes:
    """An `.npy` member whose header says whatever we like."""
    header = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(header)) + header + data


def test_hostile_npz_is_refused_in_one_line(tmp_path):
    hostile: list[tuple[dict[str, bytes], str]] = [
        ({"logits.npy": npy((10**15, 10))}, "more than 4,096 MiB"),
        ({"client.npy": npy((10,), "<U200000000")}, "more than 4,096 MiB"),
        ({"logits.npy": npy((-3, 10))}, "truncated, damaged"),
        ({"logits.npy": npy("abc")}, "no .npy array"),
        ({"logits.npy": npy((1, 2), data=b"\0" * 24)}, "'logits' is truncated, damaged"),
        ({"logits.npy": npy((4, 3)).replace(b"'<f8'", b"f(8) ")}, "no .npy array"),  # code
        ({"logits.npy": npy((1, 2), data=b"\0" * 16, version=3)}, "no .npy array"),
        ({"logits.npy": npy((1,), [("a", "<f8")], b"\0" * 8)}, "only numbers and strings"),
        ({"../logits.npy": npy((1, 2), data=b"\0" * 16)}, "is not an array"),
        ({"weights.npy": npy((1, 2), data=b"\0" * 16)}, "unknown key 'weights'; allowed"),
        ({"labels.npy": npy((4,), "|O", b"\0" * 32)}, r"contains objects \(pickles\)"),
        ({f"a{k}.npy": b"" for k in range(65)}, r"number of members must be .* \[0, 64\], got 65"),
    ]
    path = tmp_path / "x.npz"

    def read(members: dict[str, bytes]) -> Dataset:
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        return load(path)

    each_is_refused(hostile, read, start=repr(str(path)))


# --- csv ---


def csv(folder: Path, *lines: str) -> Path:
    path = folder / "x.csv"
    path.write_text("\n".join(lines), "utf-8")
    return path


def test_csv_clients_that_are_written_differently_are_different(tmp_path):
    rows = ("0,1,007", "1,0,7", "1,0,1_0", "0,1,10")
    data = load(csv(tmp_path, "label,score,client", *rows))
    assert data.client_names == ("007", "10", "1_0", "7")
    numbers = load(csv(tmp_path, "score,label,client", "0.25,0,10", "1,1,9"))
    assert numbers.client_names == ("9", "10")
    np.testing.assert_array_equal(numbers.scores, [[0.75, 0.25], [0, 1]])


def test_semicolons_and_decimal_commas_are_read_where_the_header_has_them(tmp_path):
    points = ["client,label,logit_a,logit_b", "7,a,1.25,-3e-1", "x;y,b,0,2"]
    commas = [line.translate(str.maketrans(",.", ";,")) for line in points[:2]]
    first = load(csv(tmp_path, *points))
    second = load(csv(tmp_path, *commas, '"x;y";b;0;2'))
    np.testing.assert_array_equal(second.scores, [[1.25, -0.3], [0, 2]])
    assert first.client_names == second.client_names
    assert first.class_names == second.class_names == ("a", "b")
    numbered = load(csv(tmp_path, "label;score", "1,0;0,5", "0;1", "0,0;1"))
    assert numbered.labels.tolist() == [1, 0, 0]


def test_bad_csv_is_refused_in_one_line(tmp_path):
    bad_csv: list[tuple[list[str], str]] = [
        (["label,logit_0,logit_1", "0,1,2", "0,1"], "line 3: 2 cells for 3 columns"),
        (["label,score", "", "", "0,x"], "line 4: column 'score' has no number .* point: 'x'"),
        (["label,score", "0,.5", ",.5"], "line 3: column 'label' is empty"),
        (["label;score", "0;0.5"], "line 2: column 'score' has .* comma: '0.5'"),
        (["label;score", "0;1.000,5"], "comma: '1.000,5'"),
        (["label;score", "1,0;0,5", "1.0;0,5"], "line 3: column 'label' .* comma: '1.0'"),
        (["label,score", "0,0,5"], "3 cells for 2 columns; a decimal comma"),
        (["logit_0,logit_1", "1,2"], "line 1: no column 'label' among 'logit_0', 'logit_1'"),
        (["label,logit_0,logit_2", "0,1,2"], "line 1: column 'logit_1' is missing"),
        (["label,logit_0,logit_0", "0,1,2"], "line 1: column 'logit_0' appears twice"),
        (["label,logit_00,logit_1", "0,1,1"], "line 1: unknown column 'logit_00'"),
        (["label,logit_0,logit_1,prob_0", "0,1,1,1"], "logit and prob columns together"),
        (["label,client,score", '0,"x,1', "1,y,1"], "line 3: unexpected end"),
        (["label,score", "0,\0"], "has a NUL"),
        (["label,score", f"{'a' * 257},.5", "b,.5"], "column 'label' must be .* got 257"),
        (["label,score,client", f"0,.5,{'a' * 257}"], "column 'client' must be .* got 257"),
        (["label,score,split", f"0,.5,{'a' * 257}"], "column 'split' must be .* got 257"),
        (["label,score,client", "0,1,a", "1,0, "], "client: missing in 1 of 2 .* is line 3"),
    ]
    start = repr(str(tmp_path / "x.csv"))
    each_is_refused(bad_csv, lambda lines: load(csv(tmp_path, *lines)), start=start)


# --- parquet ---


def parquet(folder: Path, columns: dict[str, Any], **options: Any) -> Path:
    path = folder / "x.parquet"
    pq.write_table(pa.table(columns), path, **options)
    return path


TYPED: dict[str, Any] = {
    "label": Y,
    "logit_2": pa.array([decimal.Decimal(int(v)) for v in Z[:, 2]], pa.decimal128(5, 1)),
    "logit_0": pa.array(Z[:, 0].astype(np.int8)),
    "logit_1": pa.array(Z[:, 1].astype(np.float16)).dictionary_encode(),
}


def test_parquet_of_any_types_is_read_in_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(_tables, "BATCH", 3)
    data = load(parquet(tmp_path, TYPED))
    assert (data.name, data.input) == ("x.parquet", "logits")
    np.testing.assert_array_equal(data.scores, Z)
    np.testing.assert_array_equal(data.labels, Y)


BAD_COLUMNS: list[Any] = [
    ({"label": Y, "logits": Z.tolist()}, "unknown column 'logits'; allowed: label, "),
    (TYPED | {"label": [0, 1, None, 1]}, "column 'label' holds null at row 2"),
    (TYPED | {"client": ["a", None, "b", "c"]}, "client: missing in 1 .* is row 1"),
    ({"label": Y, "score": list("abcd")}, "score: must hold numbers"),
    (TYPED | {"client": [{"a": 1}] * 4}, "client: must hold"),
    (TYPED | {"client": ["x" * 257] * 4}, "column .client. must be .* got 257"),
    (TYPED | {"split": Y}, "unknown split"),
    ({"label": Y[:0], "score": Y[:0]}, "number of rows must be"),
]


def test_bad_columns_are_refused_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(_tables, "BATCH", 1)
    start = repr(str(tmp_path / "x.parquet"))
    each_is_refused(BAD_COLUMNS, lambda columns: load(parquet(tmp_path, columns)), start=start)


# --- damaged, and too large ---


def damaged_npz(folder: Path) -> tuple[Path, Iterator[bytes]]:
    path = folder / "x.npz"
    np.savez_compressed(path, logits=Z, labels=Y)
    content = path.read_bytes()
    short = (content[:n] for n in range(0, len(content), 3))
    return path, chain(short, bent(content, 0x01, 5), bent(content, 0x80, 2))


def damaged_parquet(folder: Path) -> tuple[Path, Iterator[bytes]]:
    path = parquet(folder, TYPED | {"client": list("abca")}, write_page_checksum=True)
    content = path.read_bytes()
    return path, chain((content[:n] for n in range(0, len(content), 21)), bent(content, 0xFF, 9))


def bent(content: bytes, flip: int, step: int) -> Iterator[bytes]:
    for place in range(0, len(content), step):
        yield content[:place] + bytes([content[place] ^ flip]) + content[place + 1 :]


@pytest.mark.parametrize("damaged", [damaged_npz, damaged_parquet])
def test_damage_never_escapes_as_another_error(damaged, tmp_path):
    path, contents = damaged(tmp_path)
    refused, total = 0, 0
    for content in contents:
        total += 1
        path.write_bytes(content)
        try:  # a byte that no checksum covers (a date, say) may pass: then nothing changed
            np.testing.assert_array_equal(load(path).scores, Z)
        except InputError as error:
            refused += 1
            assert "\n" not in str(error)  # noqa: PT017
    assert refused > total / 2


PARTS = 20_000
DEEP = (
    ".".join(["a"] * PARTS) + " = 1",
    " . ".join(['"a.\\"\'"'] * PARTS) + " = 1",
    f"x = {{b = '\\', {'.'.join(['a'] * PARTS)} = 1}}",
    f"x = {'[' * PARTS}",
)


def refused_soon(message, call, *given, mib=300):
    """`call` refuses what is given in one line, within seconds and so many MiB."""
    tracemalloc.start()
    start = time.monotonic()
    with pytest.raises(InputError, match=message) as caught:
        call(*given)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert time.monotonic() - start < 10
    assert peak < mib * 2**20
    assert "\n" not in str(caught.value)


def test_a_sealed_study_is_bounded_before_it_is_parsed(tmp_path):
    for text in DEEP:
        refused_soon("nested too deeply", Study.from_text, text)
    refused_soon(r"must be .* 1048576\], got 1048577", Study.from_text, "#" * (2**20 + 1))
    path = tmp_path / "x.toml"
    path.write_bytes(b"#" * (2**25 + 1))
    refused_soon(f"the bytes of {path} must be", Study.read, path)
    assert parse_setting(f"x={'[' * PARTS}")[0] == "x"


def test_too_many_columns_and_classes(tmp_path):
    path = csv(tmp_path, ",".join(["label", *(f"prob_{j}" for j in range(200_000))]))
    refused_soon(r"columns must be .* 100000\], got 20\d{4}", load, path)
    wide = np.zeros((1, 200_000), np.int8)
    np.savez(tmp_path / "x.npz", logits=wide, labels=[199_999], client=[0])
    for read in (load, in_blocks):
        refused_soon("2 to 100,000 classes, got", read, tmp_path / "x.npz")


def test_files_that_unpack_too_far_are_refused_before_they_do(tmp_path, monkeypatch):
    path, zeros = tmp_path / "x.npz", np.zeros((2**16, 2))  # packed about a thousandfold
    np.savez_compressed(path, logits=zeros, labels=np.zeros(2**16, int))
    monkeypatch.setattr(npz, "_BOMB_BYTES", zeros.nbytes)
    assert load(path).scores.shape == zeros.shape
    monkeypatch.setattr(npz, "_BOMB_BYTES", zeros.nbytes - 1)
    refused("more than 1023 KiB", load, path)


@pytest.mark.parametrize("read", [load, lambda path: read_site_csv(path, None, Reading())])
def test_a_csv_that_is_too_large_is_refused(read, tmp_path, monkeypatch):
    monkeypatch.setattr(_tables, "MAX_LINE", 13)
    refused("a line of 13 characters", read, csv(tmp_path, "label,score", "0,.2500000000000"))
    path = csv(tmp_path, "label,score", "0,.25", "1,.5")
    monkeypatch.setattr(npz, "MAX_BYTES", path.stat().st_size)
    read(path)
    monkeypatch.setattr(npz, "MAX_BYTES", path.stat().st_size - 1)
    refused("more than 0 KiB", read, path)


def test_a_parquet_file_that_unpacks_too_far_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(npz, "_BOMB_BYTES", 2**22)
    for rows, name in ((400_000, "a"), (20_000, "a" * 256)):
        places = pa.array(np.zeros(rows, np.int8))
        values = {"label": 1, "client": name, "score": 0.5}
        columns = {k: pa.DictionaryArray.from_arrays(places, [x]) for k, x in values.items()}
        path = parquet(tmp_path, columns, row_group_size=rows)
        assert path.stat().st_size < 2**17
        refused_soon("more than 4 MiB", load, path, mib=50)
