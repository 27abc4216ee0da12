"""Hugging Face data: saved folders (read with pyarrow alone) and objects in memory."""

import json
import socket
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from refusals import each_is_refused, refused

from fedcal.core.errors import InputError
from fedcal.datasets import from_huggingface, load

Z = np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0, 8.0], [1.0, 0.0, 1.0]])
Y = np.array([0, 2, 1, 2])
COLUMNS: dict[str, Any] = {"logits": Z.tolist(), "label": Y, "text": list("abcd")}


@pytest.fixture
def hf(monkeypatch):
    """The package `datasets`, on a machine where nobody answers."""
    module = pytest.importorskip("datasets", reason="the extra `datasets` is not installed")

    def refuse(*_: Any) -> None:
        raise OSError("a test went to the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    return module


def stream(path: Path, columns: dict[str, Any], **options: Any) -> None:
    table = pa.table(columns)
    with pa.ipc.new_stream(str(path), table.schema, **options) as writer:
        writer.write_table(table, max_chunksize=3)


def saved(folder: Path, *parts: dict[str, Any]) -> Path:
    """What `Dataset.save_to_disk` writes, in as many files as there are parts."""
    folder.mkdir(parents=True)
    files = [f"data-{k:05d}-of-{len(parts):05d}.arrow" for k in range(len(parts))]
    for file, columns in zip(files, parts, strict=True):
        stream(folder / file, columns)
    plain = {"_data_files": [{"filename": file} for file in files], "_split": None}
    (folder / "state.json").write_text(json.dumps(plain))
    return folder


def saved_dict(folder: Path, **splits: dict[str, Any]) -> Path:
    for name, columns in splits.items():
        saved(folder / name, columns)
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": list(splits)}))
    return folder


def part(rows: slice, **more: Any) -> dict[str, Any]:
    return {"logits": Z[rows].tolist(), "label": Y[rows]} | more


def test_a_saved_dataset(tmp_path):
    more = {"client": list("baab"), "image": [b"\0"] * 4, "tokens": [[1], [2, 3], [], None]}
    data = load(saved(tmp_path / "mine", COLUMNS | more))
    assert (data.name, data.input, data.test_scores) == ("mine", "logits", None)
    np.testing.assert_array_equal(data.scores, Z)
    np.testing.assert_array_equal(data.labels, Y)
    assert data.client_names == ("a", "b")


def test_a_saved_dataset_in_several_files_and_with_a_split(tmp_path):
    fit, test = (part(s, split=[n] * 2) for s, n in ((slice(2), "fit"), (slice(2, 4), "test")))
    data = load(saved(tmp_path / "mine", fit, test))
    np.testing.assert_array_equal(data.scores, Z[:2])
    np.testing.assert_array_equal(data.test_scores, Z[2:])


@pytest.mark.parametrize("fit", ["train", "fit", "calibration", "validation"])
def test_the_splits_of_a_saved_dict_are_the_parts(fit, tmp_path):
    fit_part = part(slice(3), client=[5, 6, 5], split=["test", "odd", ""])  # of a split's own
    folder = saved_dict(tmp_path / "d", test=part(slice(3, 4)), **{fit: fit_part})
    data = load(folder)
    np.testing.assert_array_equal(data.scores, Z[:3])
    np.testing.assert_array_equal(data.test_scores, Z[3:])
    np.testing.assert_array_equal(data.test_labels, Y[3:])
    assert data.client_names == ("5", "6")
    alone = load(folder / fit)
    assert (len(alone.scores), alone.test_scores) == (3, None)


def test_splits_that_are_refused(tmp_path):
    folder = saved_dict(tmp_path / "d", train=COLUMNS)
    assert load(folder).test_scores is None
    table = [
        (
            ("train", "validation", "test"),
            "split: train and validation together; keep only the part",
        ),
        (("test",), "split: no fit part; one of train, fit"),
        (("train", "unsupervised"), "unknown split 'unsupervised'; allowed: test, train"),
        (("train", "../train"), r"unknown split '\.\./train'"),
        ((), "split: no fit part"),
    ]

    def read(splits: tuple[str, ...]) -> object:
        (folder / "dataset_dict.json").write_text(json.dumps({"splits": splits}))
        return load(folder)

    each_is_refused(table, read)


def test_descriptions_that_are_refused(tmp_path):
    states: list[Any] = [
        ({"_data_files": []}, "state.json names no .arrow files"),
        ({}, "state.json names no .arrow files"),
        ([], "state.json is not JSON with names and values"),
        ({"_data_files": 7}, "state.json names no .arrow files"),
        ({"_data_files": [{"filename": 7}]}, "names no .arrow files"),
        ({"_data_files": [{"filename": "../x.arrow"}]}, "names no .arrow files in its folder"),
        ({"_data_files": [{"filename": "/x.arrow"}]}, "names no .arrow files in its"),
        ({"_data_files": [{"filename": "state.json"}]}, "names no .arrow files"),
        ({"_data_files": [{"filename": "y.arrow"}]}, "cannot be read: No such file"),
        ({"_data_files": [], "_indices_data_files": [{"filename": "i"}]}, "by an old version of"),
    ]
    stream(tmp_path / "x.arrow", COLUMNS)
    folder = saved(tmp_path / "mine", COLUMNS)
    no_json = r"state.json( is not JSON|: more than 1 MiB)"
    texts = [(text, no_json) for text in ("", "{", "[" * 10**5, "\xff", " " * (2**20 + 1))]
    texts += [(json.dumps(state), words) for state, words in states]

    def read(text: str) -> object:
        (folder / "state.json").write_text(text, "latin-1")
        return load(folder)

    each_is_refused(texts, read, start=repr(str(folder)))


def test_files_that_differ_are_refused(tmp_path):
    folder = saved(tmp_path / "mine", part(slice(2)), part(slice(2), client=[1, 2]))
    refused(r"data-00001-of-00002\.arrow has other columns", load, folder)


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_damage_never_escapes_as_another_error(compression, tmp_path):
    folder = saved(tmp_path / "mine", COLUMNS)
    file = folder / "data-00000-of-00001.arrow"
    stream(file, part(slice(4)), options=pa.ipc.IpcWriteOptions(compression=compression))
    content = file.read_bytes()
    np.testing.assert_array_equal(load(folder).scores, Z)
    for length in range(len(content)):  # between two batches, too
        file.write_bytes(content[:length])
        refused(r"truncated or damaged", load, folder)
    for place in range(0, len(content), 3):
        changed = bytearray(content)
        changed[place] ^= 0xFF
        file.write_bytes(changed)
        try:  # Arrow has no checksums: a number may have changed
            load(folder)
        except InputError as error:
            assert "\n" not in str(error)  # noqa: PT017


def test_what_save_to_disk_writes_is_read(hf, tmp_path):
    from datasets import ClassLabel, Features, Sequence, Value

    kinds = {"logits": Sequence(Value("float32"), length=3), "text": Value("string")}
    kinds["label"] = ClassLabel(names=["cat", "dog", "bird"])
    whole = hf.Dataset.from_dict(COLUMNS, features=Features(kinds))
    chosen = whole.shuffle(seed=1).select([2, 0, 3])  # an index over the rows
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of multiprocessing in a process with threads
        chosen.save_to_disk(tmp_path / "one")
        hf.DatasetDict(train=whole, test=chosen).save_to_disk(tmp_path / "dict")
        whole.save_to_disk(tmp_path / "shards", num_shards=3)
    expected = np.array(chosen["logits"][:])
    np.testing.assert_array_equal(load(tmp_path / "one").scores, expected)
    both = load(tmp_path / "dict")
    names = ("cat", "dog", "bird")
    assert both.class_names == load(tmp_path / "one").class_names == names
    assert from_huggingface(whole).class_names == names
    np.testing.assert_array_equal(both.scores, Z)
    np.testing.assert_array_equal(both.labels, Y)
    np.testing.assert_array_equal(both.test_scores, expected)
    np.testing.assert_array_equal(load(tmp_path / "shards").scores, Z)


def test_objects_in_memory(hf):
    whole = hf.Dataset.from_dict(COLUMNS | {"client": list("baab")})
    data = from_huggingface(whole.select([3, 1]))
    np.testing.assert_array_equal(data.scores, Z[[3, 1]])
    np.testing.assert_array_equal(data.labels, Y[[3, 1]])
    assert (data.name, data.client_names) == ("huggingface", ("a", "b"))
    parts = {"validation": whole, "test": whole.select([0])}
    for given in (parts, hf.DatasetDict(parts)):
        both = from_huggingface(given, name="mine")
        np.testing.assert_array_equal(both.scores, Z)
        np.testing.assert_array_equal(both.test_scores, Z[:1])
        assert both.name == "mine"


def test_named_columns(hf):
    p = np.full((4, 3), 1 / 3)
    columns = COLUMNS | {"p": p.tolist(), "y": Y[::-1].copy(), "user": list("abab"), "client": Y}
    whole = hf.Dataset.from_dict(columns)
    data = from_huggingface(whole, probs="p", labels="y", client="user")
    assert data.input == "probs"
    np.testing.assert_array_equal(data.scores, p)
    np.testing.assert_array_equal(data.labels, Y[::-1])
    assert data.client_names == ("a", "b")
    by_rule = from_huggingface(whole, labels="y")
    np.testing.assert_array_equal(by_rule.scores, Z)
    np.testing.assert_array_equal(by_rule.labels, Y[::-1])
    flat = hf.Dataset.from_dict({"label": Y} | {f"logit_{j}": Z[:, j] for j in range(3)})
    np.testing.assert_array_equal(from_huggingface(flat).scores, Z)
    assert from_huggingface(whole, client=None).client is None
    about = from_huggingface(whole, probs="p", labels="y", client=None, subject="user")
    assert about.subject.tolist() == [0, 1, 0, 1]
    assert about.client is None


def test_columns_that_are_not_used_are_not_decoded(hf):
    whole = hf.Dataset.from_dict(COLUMNS | {"image": [{"path": None, "bytes": b"no image"}] * 4})
    whole = whole.cast_column("image", hf.Image())
    np.testing.assert_array_equal(from_huggingface(whole).scores, Z)


def test_objects_that_are_refused(hf):
    whole = hf.Dataset.from_dict(COLUMNS)
    cases: list[tuple[Any, dict[str, str], str]] = [
        (whole, {"labels": "y"}, "no column 'y'; there are: logits, label, text"),
        (whole, {"client": "user"}, "no column 'user'"),
        (whole, {"subject": "patient"}, "no column 'patient'"),
        (whole, {"logits": "z"}, "no column 'z'"),
        (whole, {"logits": "text"}, "column 'logits' holds string; must hold lists"),
        (whole, {"logits": "label"}, "one column cannot have two"),
        (whole, {"logits": "logits", "probs": "logits"}, "both logits and probs"),
        (whole.remove_columns("logits"), {}, "no score columns"),
        (whole.to_iterable_dataset(), {}, "is an IterableDataset; load it without streaming"),
        ({"train": 7}, {}, "holds a int; must be a datasets.Dataset"),
        (7, {}, "holds a int; must be a datasets.Dataset"),
        ({}, {}, "no fit part"),
        ({"train": whole, "validation": whole}, {}, "train and validation together"),
        ({7: whole}, {}, "unknown split '7'"),
    ]
    for given, options, words in cases:
        call = partial(from_huggingface, **options)
        each_is_refused([(given, words)], call, start="huggingface: ")


def test_a_federated_dataset_gets_a_hint():
    class FederatedDataset:
        def load_split(self, split: str) -> None:
            raise NotImplementedError

    with pytest.raises(InputError, match=r'a FederatedDataset; give its load_split\("train"\)'):
        from_huggingface(FederatedDataset())
