"""A text is a number only where a person means one: the same rule on command lines and in files."""

import shlex

import numpy as np
import pytest

from fedcal.cli.main import exit_code_of

SIMULATE = "simulate --data mnist-cnn --no-report"
NUMBERS = ("0_1", "１", "1_0.5", "infinity")
PLACES = (
    f"{SIMULATE} --epsilon {{}}",
    f"{SIMULATE} --clients {{}}",
    f"{SIMULATE} --partition dirichlet:{{}}",
    f"{SIMULATE} --partition quantity:{{}}",
    f"{SIMULATE} --partition shards:{{}}",
    f"{SIMULATE} --epsilon 1 --set rows_per_client={{}}",
    f"{SIMULATE} --secure-aggregation protocol --committee {{}},1",
    "compare --data mnist-cnn --method none --epsilon 1,{} --out out",
    "evaluate --data mnist-cnn --threshold {}",
    "train --data mnist-features --model mlp:{} --out out",
    "study init s.toml --sites a={},b,c --classes x,y --server h:1",
    "study init s.toml --sites a,b,c --classes x,y --server h:{}",
    "study init s.toml --sites a,b,c --classes x,y --server h:1 --per-year {}",
    "study init s.toml --sites a,b,c --classes x,y --server h:1 --thresholds .5,{}",
)


@pytest.mark.parametrize("place", PLACES)
def test_a_command_line(place, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for number in NUMBERS:
        code = exit_code_of(shlex.split(place.format(number)))
        said = capsys.readouterr()
        assert (code, said.out) == (2, ""), number
        assert said.err.startswith("fedcal: error: "), number
        assert number in said.err
        assert not [*tmp_path.iterdir()], number


@pytest.mark.parametrize("kind", ["label", "prob_1"])
@pytest.mark.parametrize("form", ["en", "de"])
def test_a_table(kind, form, tmp_path, capsys):
    separator = {"en": ",", "de": ";"}[form]
    for number in NUMBERS:
        cells = {"label": "1", "prob_0": "0", "prob_1": "1"} | {kind: number}
        lines = [
            separator.join(cells),
            separator.join(["0", "1", "0"]),
            separator.join(cells.values()),
        ]
        path = tmp_path / "x.csv"
        path.write_text("\n".join(lines), "utf-8")
        assert exit_code_of(["evaluate", "--data", str(path)]) == 2
        said = capsys.readouterr().err
        assert f"line 3: column {kind!r} is not a number: {number!r}" in said


def test_what_people_write_is_read(tmp_path, capsys):
    path = tmp_path / "x.csv"
    rows = [
        f" +1 ,1e-1, 9E-1\n0, .{90 + k % 9}5,{1 - (900 + 10 * (k % 9) + 5) / 1000:.3f}"
        for k in range(50)
    ]
    path.write_text("label,prob_0,prob_1\n" + "\n".join(rows), "utf-8")
    given = ["--epsilon", "+8.", "--set", "rows_per_client=.5e2", "--partition", "dirichlet:1e-1"]
    assert exit_code_of(["simulate", "--data", str(path), *given, "--clients", "5", "--json"]) == 0
    assert '"rows_per_client": 50' in capsys.readouterr().out


def test_names_that_are_no_numbers_stay_names(tmp_path):
    from fedcal import datasets

    path = tmp_path / "x.csv"
    names = ("0_1", "01", "１", "--2")
    path.write_text(
        "label,score,client,group\n"
        + "".join(f"{k % 2},.{k % 2 + 3},{n},{n}\n" for k, n in enumerate(names)),
        "utf-8",
    )
    assert set(datasets.load(path).client_names) == set(names)
    np.savez(
        tmp_path / "x.npz",
        probs=np.full((4, 2), 0.5),
        labels=[0, 1, 0, 1],
        client=sorted(names),
        group=["²", "--1", "-1", "1"],
    )
    assert datasets.in_blocks(tmp_path / "x.npz").group_names == ("--1", "-1", "1", "²")
