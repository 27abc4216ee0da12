"""Result files: strict JSON, all of them or none."""

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcal.core.errors import FedcalError, InputError
from fedcal.experiments import simulate
from fedcal.experiments.runs.files import check_out, to_json, write_folder

pytestmark = pytest.mark.usefixtures("quick_figures")

NAMES = {
    *("result.json", "config.toml", "calibrator.npz", "test_probs.npy"),
    *("rounds.jsonl", "reliability.json", "report.html"),
    *(f"{name}.{kind}" for name in ("reliability", "classes", "rounds") for kind in ("png", "svg")),
}


@pytest.fixture(scope="module")
def result():
    labels = np.arange(40) % 2
    return simulate({"logits": np.eye(2)[labels] * 3, "labels": labels}, clients=3, rounds=2)


def test_json_is_strict_and_for_people():
    for value in (math.nan, -math.inf, {"a": [1.0, math.nan]}):
        with pytest.raises(ValueError, match="not JSON compliant"):
            to_json(value)
    assert to_json({"a": [1, 0.5, None]}) == ('{\n  "a": [\n    1,\n    0.5,\n    null\n  ]\n}\n')


def test_folders_are_made_as_needed_and_what_else_lies_in_them_stays(result, tmp_path):
    out = tmp_path / "a" / "b"
    result.save(out)
    assert {p.name for p in out.iterdir()} == NAMES
    assert os.listdir(tmp_path) == ["a"]
    (out / "notes.txt").write_text("mine")
    (out / "result.json").write_text("old")
    result.save(out)
    assert {p.name for p in out.iterdir()} == {*NAMES, "notes.txt"}
    assert (out / "notes.txt").read_text() == "mine"
    assert (out / "result.json").read_text() == to_json(result.to_json())


def test_result_json_goes_first_and_comes_last(result, tmp_path, monkeypatch):
    result.save(tmp_path)
    moved: list[tuple[str, bool]] = []
    real = os.replace

    def watch(source: Any, target: Any) -> None:
        moved.append((Path(target).name, Path(target).parent == tmp_path))
        real(source, target)

    monkeypatch.setattr(os, "replace", watch)
    result.save(tmp_path)
    outward = [name for name, into in moved if not into and name in NAMES][2:]
    inward = [name for name, into in moved if into]
    assert set(outward) == set(inward) == NAMES  # (the own moves of two came before)
    assert outward[0] == inward[-1] == "result.json"


FULL, STOPPED = OSError(28, "No space left on device"), KeyboardInterrupt()


@pytest.mark.parametrize(
    ("error", "at"), [(FULL, 0), (STOPPED, 1), (FULL, 12), (STOPPED, 13), (FULL, 14), (STOPPED, 25)]
)
def test_what_was_there_is_put_back(result, tmp_path, monkeypatch, error, at):
    for name in NAMES:
        (tmp_path / name).write_text(f"old {name}")
    real, calls = os.replace, [0]

    def fail_once(source: Any, target: Any) -> None:
        if tmp_path in (Path(source).parent, Path(target).parent):
            calls[0] += 1
            if calls[0] == at + 1:
                raise error
        real(source, target)

    monkeypatch.setattr(os, "replace", fail_once)
    with pytest.raises((FedcalError, KeyboardInterrupt)):
        result.save(tmp_path)
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {n: f"old {n}" for n in NAMES}


def test_an_impossible_file_leaves_no_folder(result, tmp_path, monkeypatch):
    (tmp_path / "there").mkdir()
    for out, error, why in (
        ("deep/down/new", FULL, "No space left on device"),
        ("there", OSError("40 requested and 8 written"), r"40 .* 8 written \(is the disk full"),
    ):

        def full(*_: Any, error: OSError = error, **__: Any) -> None:
            raise error

        monkeypatch.setattr(np, "save", full)
        with pytest.raises(FedcalError, match=rf"cannot write results to .*: {why}"):
            result.save(tmp_path / out)
        assert list(tmp_path.rglob("*")) == [tmp_path / "there"]


def test_a_folder_is_checked_before_the_run_without_a_trace(tmp_path):
    for out in ("", "new", "deep/down/new"):
        check_out(tmp_path / out)
        assert os.listdir(tmp_path) == []
    (tmp_path / "file").write_text("mine")
    for out in ("file", "file/below", "file/far/below"):
        with pytest.raises(InputError, match="file"):
            check_out(tmp_path / out)
    assert os.listdir(tmp_path) == ["file"]


def test_what_an_earlier_run_left_goes(tmp_path):
    for name in ("rounds.png", "rounds.svg", "notes.png"):
        (tmp_path / name).write_text("old")
    (tmp_path / "rounds.d").mkdir()
    write_folder(tmp_path, lambda folder: None, stale=("rounds.*",))
    assert {p.name for p in tmp_path.iterdir()} == {"notes.png", "rounds.d"}
    (tmp_path / "rounds.d" / "mine").write_text("mine")  # a folder is never replaced by a file
    with pytest.raises(FedcalError, match=r"rounds\.d in it is a folder"):
        write_folder(tmp_path, lambda folder: (folder / "rounds.d").write_text("new") and None)
    assert (tmp_path / "rounds.d" / "mine").read_text() == "mine"
