"""A text is a number only where a person means one: the same rule on command lines and in files."""

import re
import shlex

import numpy as np
import pytest

from fedcal import datasets
from fedcal.cli.main import exit_code_of

NUMBERS = ("0_1", "１", "1_0.5", "infinity")
SIMULATE = "simulate --data mnist-cnn --no-report"
STUDY = "study init s.toml --classes x,y"
PLACES = (
    f"{SIMULATE} --epsilon {{}}",
    f"{SIMULATE} --clients {{}}",
    f"{SIMULATE} --partition shards:{{}}",
    f"{SIMULATE} --epsilon 1 --set rows_per_client={{}}",
    f"{SIMULATE} --secure-aggregation protocol --committee {{}},1",
    "compare --data mnist-cnn --method none --epsilon 1,{} --out out",
    "train --data mnist-features --model mlp:{} --out out",
    f"{STUDY} --sites a={{}},b,c --server h:1",
    f"{STUDY} --sites a,b,c --server h:{{}}",
    f"{STUDY} --sites a,b,c --server h:1 --thresholds .5,{{}}",
)


def test_a_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for k, place in enumerate(PLACES):
        number = NUMBERS[k % len(NUMBERS)]
        code = exit_code_of(shlex.split(place.format(number)))
        shown = capsys.readouterr()
        assert (code, shown.out) == (2, ""), place
        assert re.match(f"fedcal: error: .*{re.escape(number)}", shown.err), place
        assert not [*tmp_path.iterdir()], place


@pytest.mark.parametrize(("kind", "separator"), [("label", ","), ("prob_1", ";")])
def test_a_table(kind, separator, tmp_path, capsys):
    path = tmp_path / "x.csv"
    for number in NUMBERS:
        cells = {"label": "1", "prob_0": "0", "prob_1": "1"} | {kind: number}
        lines = [[*cells], ["0", "1", "0"], [*cells.values()]]
        path.write_text("\n".join(map(separator.join, lines)), "utf-8")
        assert exit_code_of(["evaluate", "--data", str(path)]) == 2
        assert repr(number) in capsys.readouterr().err


def test_names_that_are_no_numbers_stay_names(tmp_path):
    names = ("0_1", "01", "１", "--2")
    rows = [f"{k % 2},.{k % 2 + 3},{name}" for k, name in enumerate(names)]
    (tmp_path / "x.csv").write_text("\n".join(["label,score,client", *rows]), "utf-8")
    assert set(datasets.load(tmp_path / "x.csv").client_names) == set(names)
    groups = ["²", "--1", "-1", "1"]
    scores = {"probs": np.full((4, 2), 0.5), "labels": [0, 1, 0, 1]}
    np.savez(tmp_path / "x.npz", **scores, client=sorted(names), group=groups)
    assert datasets.in_blocks(tmp_path / "x.npz").group_names == ("--1", "-1", "1", "²")
