"""Shipped sets against the numbers of their sources; every kind of bad input, one line each."""

import gzip
import struct
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import each_is_refused, refused

import fedcal.datasets as datasets
from fedcal.core.checks import InputError
from fedcal.datasets import Dataset, catalogue, feature_sets, from_arrays, load
from fedcal.storage import npz

HERE = Path(datasets.__file__).parent
NAMES = [entry.name for entry in catalogue()]


def accuracy_and_ece(probs: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """ECE: sum over 15 bins of |sum(hit - confidence)| / n; [a,b), last closed."""
    hit, confidence = probs.argmax(axis=1) == labels, probs.max(axis=1)
    place = np.minimum(np.floor(confidence * 15), 14).astype(int)
    return float(hit.mean()), float(np.abs(np.bincount(place, hit - confidence)).sum() / len(hit))


# --- shipped sets --------------------------------------------------------------------------

# Computed once from the original files of each source, in float64 and without any rounding of
# ours (imdb: probabilities as published, which sum to 1.00002; forecasts: a tie counts as 0).
SOURCE = {
    ("resnet110-cifar10", "fit"): (0.9462, 0.03986457),
    ("resnet110-cifar10", "test"): (0.9356, 0.04750350),  # Guo et al. 2017: 4.75 %
    ("densenet-cifar100", "fit"): (0.7544, 0.14007919),
    ("densenet-cifar100", "test"): (0.7538, 0.14472724),
    ("densenet-cifar100", "all"): (0.7541, 0.14215282),
    ("imdb-binary", "fit"): (0.89576, 0.04039552),
    ("game-forecasts", "fit"): (0.61862298, 0.01298954),
    ("mnist-cnn", "fit"): (0.93353302, 0.02360432),
    ("mnist-cnn", "test"): (0.93424618, 0.01886959),
    ("heart-disease", "fit"): (0.69531250, 0.09030338),
    ("heart-disease", "test"): (0.72727273, 0.05864971),
    ("mmlu-llama", "fit"): (0.40540541, 0.05611041),
    ("adult-income", "fit"): (0.84675388, 0.00869889),
}


@pytest.mark.parametrize(("name", "part"), SOURCE)
def test_shipped_scores_are_as_good_as_their_source(name, part):
    data = load(name)
    probs, labels = data.probs, data.labels
    if part != "fit":
        probs, labels = data.test_probs, data.test_labels
    if part == "all":
        probs, labels = np.vstack([data.probs, probs]), np.concatenate([data.labels, labels])
    assert accuracy_and_ece(probs, labels) == pytest.approx(SOURCE[name, part], abs=2e-4)


@pytest.mark.parametrize("entry", catalogue(), ids=NAMES)
def test_catalogue_tells_the_truth(entry):
    data = load(entry.name)
    assert data.name == entry.name
    assert data.input == entry.input
    assert data.scores.shape == (entry.rows, entry.classes)
    assert data.scores.dtype == np.float64
    assert data.scores.flags.c_contiguous
    assert data.labels.dtype == np.int64
    assert data.labelled
    assert len(np.unique(data.labels)) == data.classes == entry.classes
    assert (0 if data.test_scores is None else len(data.test_scores)) == entry.test_rows
    assert len(data.client_names or ()) == entry.clients
    assert len(data.group_names or ()) == entry.groups
    if data.input == "probs":
        np.testing.assert_allclose(data.scores.sum(axis=1), 1, atol=1e-12)


def test_attribution_is_complete():
    text = (HERE / "README.md").read_text(encoding="utf-8")
    assert "Copyright (c) 2018 Markus Kängsepp" in text
    assert "Permission is hereby granted, free of charge" in text
    for entry in (*catalogue(), *feature_sets()):
        assert f"`{entry.name}`" in text
        assert entry.author
        assert entry.licence in ("MIT", "Apache-2.0", "CC-BY-4.0")


# --- Dataset -------------------------------------------------------------------------------


def small() -> Dataset:
    rng, row = np.random.default_rng(7), np.arange(101)
    logits = np.stack([row, rng.normal(size=101)], axis=1)
    return from_arrays(logits=logits, labels=rng.integers(0, 2, 101), client=row % 5)


def test_split_is_deterministic_disjoint_and_complete():
    data = replace(small(), subject=np.arange(101))
    one, again, other = data.split(3), data.split(3), data.split(4)
    assert (len(one.scores), len(one.test_scores)) == (51, 50)
    np.testing.assert_array_equal(one.test_scores, again.test_scores)
    assert not np.array_equal(one.test_scores, other.test_scores)
    fit_rows, test_rows = one.scores[:, 0].astype(int), one.test_scores[:, 0].astype(int)
    assert sorted([*fit_rows, *test_rows]) == list(range(101))
    assert list(fit_rows) == sorted(fit_rows)
    np.testing.assert_array_equal(one.labels, data.labels[fit_rows])
    np.testing.assert_array_equal(one.test_labels, data.labels[test_rows])
    np.testing.assert_array_equal(one.client, fit_rows % 5)
    np.testing.assert_array_equal(one.test_client, test_rows % 5)
    np.testing.assert_array_equal(one.subject, fit_rows)
    assert one.client_names == data.client_names == ("0", "1", "2", "3", "4")
    assert one.scores.flags.c_contiguous
    assert one.split(99) is one


# --- from_arrays ---------------------------------------------------------------------------

Z = np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0, 8.0], [1.0, 0.0, 1.0]])
P = np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0], [0.1, 0.1, 0.8], [0.4, 0.4, 0.2]])
Y = np.array([0, 2, 1, 2])


def with_entry(array: np.ndarray, place: tuple[int, int], value: float) -> np.ndarray:
    changed = array.copy()
    changed[place] = value
    return changed


TEST = {"test_logits": Z, "test_labels": Y}
BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "logits or probs is needed"),
    ({"logits": Z, "probs": P}, "probs has no effect here: logits are given"),
    ({"logits": Z, "labels": None}, "labels is needed"),
    ({"logits": Z[:, 0]}, r"logits: must have shape .* got \(4,\)"),
    ({"logits": [[1.0, 2.0], [1.0]], "labels": [0, 0]}, "logits: cannot be read"),
    ({"logits": np.array([[None, 1]]), "labels": [0]}, "logits: a missing value at row 0"),
    ({"logits": [[{}, 1]], "labels": [0]}, "must hold numbers, got type object, such as"),
    ({"logits": [["a", "b"]], "labels": [0]}, "must hold numbers"),
    ({"logits": [[1j, 2]], "labels": [0]}, "must hold numbers"),
    ({"logits": np.empty((0, 3)), "labels": []}, "logits: must have shape .rows >= 1"),
    ({"logits": Z[:, :1]}, "with 2 to 100,000 classes"),
    ({"logits": with_entry(Z, (2, 1), np.nan)}, "logits: nan at row 2, column 1"),
    ({"logits": with_entry(Z, (3, 0), -np.inf)}, "logits: -inf at row 3, column 0"),
    ({"logits": with_entry(Z, (1, 0), -1e200)}, r"-1e\+200 at row 1, column 0"),
    ({"probs": with_entry(P, (1, 1), np.nan)}, "probs: nan at row 1"),
    ({"probs": Z}, r"probs: 2 at row 0, column 2; .*\[0, 1\]"),
    ({"probs": with_entry(P, (2, 0), -0.1)}, "probs: -0.1 at row 2"),
    ({"probs": with_entry(P, (3, 2), 0.1)}, "probs: 0.9 at row 3"),
    ({"logits": Z, "labels": np.eye(4)}, r"labels: must have shape \(4,\)"),
    ({"logits": Z, "labels": Y[:3]}, "one entry for each row of logits, got"),
    ({"logits": Z, "labels": list("abba")}, r"labels are names \('a', 'b'\)"),
    ({"logits": Z, "labels": [0, 1, 1.5, 0]}, "labels: 1.5 at row 2"),
    ({"logits": Z, "labels": [0, np.nan, 1, 0]}, "labels: nan at row 1"),
    ({"logits": Z, "labels": [0, 1, 2, 3]}, r"labels: 3 at row 3; .* \[0, 2\]"),
    ({"logits": Z, "labels": [-1, 1, 2, 0]}, "labels: -1 at row 0"),
    ({"logits": Z, "labels": np.array([0, 1, 2, 2**64 - 1], np.uint64)}, r"1\.84467e\+19 at row 3"),
    ({"logits": Z, "labels": [0, 1e300, 1, 2]}, r"labels: 1e\+300 at row 1"),
    *(
        case
        for k in ("client", "subject")
        for case in (
            ({"logits": Z, k: [1, 2]}, rf"{k}: must have shape \(4,\)"),
            ({"logits": Z, k: [1j] * 4}, f"{k}: must hold"),
            ({"logits": Z, k: [None] * 4}, f"{k}: a missing"),
            ({"logits": Z, k: [0, 0.5, 1, 1]}, f"{k}: 0.5 at row 1"),
            ({"logits": Z, k: [b"\xff"] * 4}, f"{k}: .* UTF-8"),
            ({"logits": Z, k: [0, 1, 2, 1e30]}, f"{k}: .* those beyond"),
        )
    ),
    (
        {"logits": Z, "test_probs": P, "test_labels": Y},
        "kind of test scores, .* must be",
    ),
    ({"logits": Z, **TEST, "test_probs": P}, "test_probs has no effect"),
    (
        {"logits": Z, **TEST, "test_logits": Z[:, :2]},
        "number of classes of test_logits, as of logits, must be 3, got 2",
    ),
    ({"probs": P, "test_probs": P}, "test_labels is needed: test_probs is given"),
    ({"probs": P, "test_labels": Y}, "test_labels has no effect here: there is no test_probs"),
    ({"logits": Z, **TEST, "test_logits": Z * np.nan}, "test_logits: nan at row 0, column 0"),
    ({"logits": Z, **TEST, "test_labels": Y + 1}, "test_labels: 3 at row 1"),
    (
        {"logits": Z, "client": Y, **TEST, "test_client": [2, 3, 0, 0]},
        "at row 1 '3'; all",
    ),
    (
        {"logits": Z, "client": Y, **TEST, "test_client": [0]},
        r"test_client: must have shape \(4,\)",
    ),
    ({"logits": Z, "client": Y, "test_client": Y}, "test_client has no effect .* no test_logits"),
    ({"logits": Z, **TEST, "test_client": Y}, "test_client has no effect .* no client"),
]


def test_bad_arrays_are_refused_in_one_line():
    each_is_refused(BAD, lambda arguments: from_arrays(**{"labels": Y, **arguments}))


# --- npz -----------------------------------------------------------------------------------


def npy(shape: object, descr: object = "<f8", data: bytes = b"", version: int = 1) -> bytes:
    """An `.npy` member whose header says whatever we like."""
    header = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(header)) + header + data


def test_hostile_npz_is_refused_in_one_line(tmp_path):
    hostile: list[tuple[dict[str, bytes], str]] = [
        ({"logits.npy": npy((10**15, 10))}, "more than 4,096 MiB"),
        ({"logits.npy": npy((10**4000, 10))}, "more than 4,096 MiB"),
        ({"labels.npy": npy((2**30,), "|u1")}, "more than 4,096 MiB"),
        ({"client.npy": npy((10,), "<U200000000")}, "more than 4,096 MiB"),
        ({"logits.npy": npy((-3, 10))}, "truncated, damaged"),
        ({"logits.npy": npy("abc")}, "no .npy array"),
        ({"logits.npy": npy((4, 3), data=b"\0" * 8)}, "'logits' is truncated, damaged"),
        ({"logits.npy": npy((1, 2), data=b"\0" * 24)}, "'logits' is truncated, damaged"),
        ({"logits.npy": b"hello, this is text"}, "no .npy array"),
        ({"logits.npy": b""}, "no .npy array"),
        ({"logits.npy": npy((4, 3)).replace(b"'<f8'", b"f(8) ")}, "no .npy array"),  # code
        ({"logits.npy": npy((1, 2), data=b"\0" * 16, version=3)}, "no .npy array"),
        ({"logits.npy": npy((1,), [("a", "<f8")], b"\0" * 8)}, "only numbers and strings"),
        ({"labels.npy": npy((1,), "<M8[s]", b"\0" * 8)}, "only numbers and strings"),
        ({"logits.npy": npy((1, 2), "<c16", b"\0" * 32)}, "only numbers and strings"),
        ({"logits.txt": b"1 2"}, "'logits.txt' is not an array"),
        ({"../logits.npy": npy((1, 2), data=b"\0" * 16)}, "is not an array"),
        ({"weights.npy": npy((1, 2), data=b"\0" * 16)}, "unknown key 'weights'; allowed"),
        ({"log_odds.npy": npy((1,), data=b"\0" * 8)}, "unknown key 'log_odds'"),
        ({f"a{k}.npy": b"" for k in range(65)}, r"number of members must be .* \[0, 64\], got 65"),
        ({}, "logits or probs is needed"),
    ]
    path = tmp_path / "x.npz"

    def read(members: dict[str, bytes]) -> Dataset:
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        return load(path)

    each_is_refused(hostile, read, start=repr(str(path)))


def test_npz_with_a_pickle_is_not_unpickled(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, logits=Z, labels=np.array([{}, 1, 2, 3], object))
    refused(r"member 'labels' contains objects \(pickles\)", load, path)


def test_npz_bomb_is_refused_before_it_unpacks(tmp_path, monkeypatch):
    # Zeros pack about a thousandfold; below the threshold (lowered here) they are plain data.
    path, zeros = tmp_path / "x.npz", np.zeros((2**16, 2))
    np.savez_compressed(path, logits=zeros, labels=np.zeros(2**16, int))
    monkeypatch.setattr(npz, "_BOMB_BYTES", zeros.nbytes)
    assert load(path).scores.shape == zeros.shape
    monkeypatch.setattr(npz, "_BOMB_BYTES", zeros.nbytes - 1)
    refused("more than 1023 KiB", load, path)


def test_truncated_and_flipped_bytes_never_escape_as_another_error(tmp_path):
    bent = tmp_path / "bent.npz"
    np.savez_compressed(bent, logits=Z, labels=Y)
    content, refused = bytearray(bent.read_bytes()), 0
    for length in range(len(content)):
        bent.write_bytes(content[:length])
        with pytest.raises(InputError, match=r"not an intact \.npz|truncated, damaged"):
            load(bent)
    for place in range(len(content)):
        for flip in (0x01, 0x80):
            content[place] ^= flip
            bent.write_bytes(content)
            try:  # a byte that no checksum covers (a date, say) may pass: then nothing changed
                np.testing.assert_array_equal(load(bent).scores, Z)
            except InputError as error:
                refused += 1
                assert "\n" not in str(error)  # noqa: PT017
            content[place] ^= flip
    assert refused > len(content)


# --- csv -----------------------------------------------------------------------------------


def write_csv(path: Path, *lines: str) -> Path:
    content = "\n".join(lines) + "\n"
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(content.encode()))
    else:
        path.write_text(content, encoding="utf-8")
    return path


def test_csv_clients_that_are_written_differently_are_different(tmp_path):
    rows = ("0,1,007", "1,0,7", "1,0,1_0", "0,1,10")
    data = load(write_csv(tmp_path / "x.csv", "label,score,client", *rows))
    assert data.client_names == ("007", "10", "1_0", "7")
    numbers = load(write_csv(tmp_path / "x.csv", "score,label,client", "0.25,0,10", "1,1,9"))
    assert numbers.client_names == ("9", "10")
    np.testing.assert_array_equal(numbers.scores, [[0.75, 0.25], [0, 1]])


def test_semicolons_and_decimal_commas_are_read_where_the_header_has_them(tmp_path):
    """The same rows in both forms; what could be thousands is refused."""
    points = ["client,label,logit_a,logit_b", "7,a,1.25,-3e-1", "x;y,b,0,2"]
    commas = [line.translate(str.maketrans(",.", ";,")) for line in points[:2]]
    commas.append('"x;y";b;0;2')
    english, german = tmp_path / "en.csv", tmp_path / "de.csv.gz"
    english.write_text("\n".join(points))
    with gzip.open(german, "wt") as file:
        file.write("\n".join(commas))
    first, second = load(english), load(german)
    np.testing.assert_array_equal(second.scores, [[1.25, -0.3], [0, 2]])
    assert vars(replace(second, name=first.name)).keys() == vars(first).keys()
    np.testing.assert_array_equal(first.scores, second.scores)
    assert first.client_names == second.client_names
    assert first.class_names == second.class_names == ("a", "b")
    for line, problem in {
        "label;score\n0;0.5": r"line 2: column 'score' is not a number: '0.5'; .* need a comma",
        "label;score\n0;1.000,5": "is not a number: '1.000,5'",
        "label;score\n0.0;0,5": r"'label' is not a number: '0.0'; .* need a comma",
        "label|score\n0|0.5": "separated by bars; allowed are commas",
    }.items():
        path = tmp_path / "x.csv"
        path.write_text(line)
        refused(problem, load, path)


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_bad_csv_is_refused_in_one_line(suffix, tmp_path):
    bad_csv: list[tuple[list[str], str]] = [
        (["label,logit_0,logit_1", "0,1,2", "0,1"], "line 3: 2 cells for 3 columns"),
        (["label,logit_0,logit_1", "0,1,2,3"], "line 2: 4 cells for 3 columns"),
        (["label,score", "", "", "0,x"], "line 4: column 'score' is not a number: 'x'"),
        (["label,logit_0,logit_1", "0,1,two"], "line 2: column 'logit_1' is not a number"),
        (["label,logit_0,logit_1", "0,,2"], "line 2: column 'logit_0' is not a number"),
        (["label,score", "0,.5", "cat,.5"], "line 3: column 'label' is not a number"),
        (["label,score", "cat,.5"], r"labels are names \('cat'\)"),
        (["label,prob_a,prob_b", "a,1,0", "b,0,1", "c,0,1"], "labels: 'c' at row 2; allowed: a, b"),
        (["label,score", "a,1", ",0"], "line 3: column 'label' is not a number: ''"),
        (["label\tscore", "0\t.5"], "separated by tabs; allowed are commas"),
        (["label,score", '0,"0,5"'], "not a number: '0,5'; decimals need a point"),
        (["label,score", "0,0,5"], "3 cells for 2 columns; a decimal comma"),
        (["y,p", "0,1"], "line 1: unknown column 'y'; allowed: label"),
        (["label,prob_0,prob_b", "0,1,0"], "unknown column 'prob_b'"),
        (["label,logit_0,logit_1", "0,nan,2"], "logits: nan at row 0, column 0"),
        (["logit_0,logit_1", "1,2"], "line 1: no column 'label' among 'logit_0', 'logit_1'"),
        (["label,client", "1,2"], "line 1: no score columns"),
        (["label,logit_0,logit_2", "0,1,2"], "line 1: column 'logit_1' is missing"),
        (["label,prob_1,prob_2", "0,.5,.5"], "line 1: column 'prob_0' is missing"),
        (["label,logit_0,logit_0", "0,1,2"], "line 1: column 'logit_0' appears twice"),
        (["label,label,score", "0,0,.5"], "line 1: column 'label' appears twice"),
        (["label,score,weight", "0,.5,1"], "line 1: unknown column 'weight'; allowed"),
        (["label,logit_00,logit_1", "0,1,1"], "line 1: unknown column 'logit_00'"),
        (["label,logit_0,logit_1,prob_0", "0,1,1,1"], "logit and prob columns together"),
        (["label,score,prob_0", "0,1,1"], "prob and score columns together"),
        (["label,logit_0", "0,1"], "with 2 to 100,000 classes"),
        (["label,score", "0,.5", "1,1.5"], r"probs: 1.5 at row 1; .* must lie in \[0, 1\]"),
        (["label,score", "0,nan"], r"probs: nan at row 0; .* must lie in \[0, 1\]"),
        (["label,score", "2,.5"], "labels: 2 at row 0"),
        (["label,score"], "rows >= 1"),
        (["label,client,score", '0,"x,1', "1,y,1"], "line 3: unexpected end"),
        (["label,score", "0,\0"], "line 2: .* has a NUL"),
        (
            ["label,score,subject", "0,1,a", "1,0, "],
            "subject: missing in 1 of 2 rows, the first is line 3",
        ),
        (
            ["label,score,client", "0,1,a", "1,0, "],
            "client: missing in 1 of 2 rows, the first is line 3",
        ),
    ]
    path = tmp_path / f"x{suffix}"
    each_is_refused(bad_csv, lambda lines: load(write_csv(path, *lines)), start=repr(str(path)))


# --- names and paths -----------------------------------------------------------------------


def test_paths_and_names_that_are_no_data_get_one_line(tmp_path):
    files = ("missing.npz", "missing.csv", "missing.csv.gz", "x.parquet")
    each_is_refused([(tmp_path / name, "no such file") for name in files], load)
    (tmp_path / "scores.txt").write_text("1")
    for folder in ("folder.npz", "empty", "some"):
        (tmp_path / folder).mkdir()
    write_csv(tmp_path / "some" / "scores.csv", "label,score", "0,.5")
    table = [
        (tmp_path / "scores.txt", r"allowed: \.npz, \.csv, \.csv\.gz, \.parquet"),
        (tmp_path / "folder.npz", "is not a file"),
        (tmp_path / "empty", "is not a file"),
        (tmp_path / "some", r"is not a file; give the path of a "),
    ]
    each_is_refused(table, load)
    names = ("a\nb", "a\0b", "x" * 5000, "x" * 5000 + ".npz", "")
    each_is_refused([(name, "") for name in names], load, most=600)
