"""A small grid: its cells, claims and files, and what `--check` says of other results."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refused

from experiments.__main__ import main
from experiments.studies import claims, expected, run, spec, texts
from experiments.studies.expected import content, deviations, read, shipped, write, wrong_verdicts
from experiments.studies.run import reproduce
from experiments.studies.spec import EXPERIMENTS
from fedcal import compare

SMALL = """
[small]
title = "Small"
about = "Two parts on a small network."
networks = ["NETWORK"]
seeds = 2
notes = ["A note."]

[small.claims]
weighted-keeps = ""
newton-reaches-pooled = ""
fedcal-worst = ""
newton-ratio = ""

[[small.parts]]
name = "paper"
block = "The paper's"
rounds = 2
sampling-rate = 0.5

[small.parts.methods]
"Base" = "none"
"FedBBQ" = "fedbbq[weighting=none]"
"FedBBQ all weight" = "fedbbq[weighting=all]"

[[small.parts]]
name = "ours"
block = "Ours"

[small.parts.methods]
"FedNewton" = "fednewton"
"pooled temperature" = "pooled-temperature"
"""


def _known(folder: Path, patch: pytest.MonkeyPatch, network: str) -> str:
    (folder / "small.toml").write_text(SMALL.replace("NETWORK", network))
    patch.setattr(spec, "FOLDER", folder)
    patch.setitem(spec.EXPERIMENTS, "small", "small")
    return "small"


@pytest.fixture
def small(network, tmp_path_factory, monkeypatch):
    """The name of the small experiment, which is in the table."""
    return _known(tmp_path_factory.mktemp("studies"), monkeypatch, network)


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """A data file of three classes with a test part."""
    file, rng = tmp_path_factory.mktemp("data") / "net.npz", np.random.default_rng(5)
    labels = rng.integers(0, 3, 400)
    logits = 3 * rng.normal(size=(400, 3)) + 3 * np.eye(3)[labels]
    fit, test = {"logits": logits[:200], "labels": labels[:200]}, (logits[200:], labels[200:])
    np.savez(file, **fit, test_logits=test[0], test_labels=test[1])
    return str(file)


@pytest.fixture(scope="module")
def ran(network, tmp_path_factory):
    """The small experiment, run once, and the folder of its files."""
    out = tmp_path_factory.mktemp("out")
    with pytest.MonkeyPatch.context() as patch:
        name = _known(tmp_path_factory.mktemp("studies"), patch, network)
        return reproduce(name, jobs=1, out=out), out


def test_cells_are_what_compare_gives_and_claims_are_evaluated(ran, small, network):
    found, out = ran
    options: dict[str, Any] = {"clients": 100, "partition": "dirichlet:0.1", "rounds": 2}
    options |= {"sampling_rate": 0.5, "epsilon": "inf", "seeds": 2, "jobs": 1}
    beside = compare(network, method="fedbbq", **options).cells[1]
    (row,) = [row for row in found.cells if row["title"] == "FedBBQ all weight"]
    assert row["classwise_ece"] == beside["after"]["classwise_ece"]["values"]
    assert row["accuracy"] == beside["after"]["accuracy"]["values"]
    assert row["accuracy_before"] == pytest.approx(beside["before"]["accuracy"]["mean"])
    assert (row["network"], row["rounds"], row["clients"]) == ("net", 2, 100)
    words = {v.text.partition(" ")[0]: v.word for v in found.verdicts}
    assert words["Without"] == "holds"  # FedNewton without privacy is the pooled temperature
    assert words["FedNewton's"] == "holds"
    assert words["FedCal"] == "undecided"
    assert {path.name for path in out.iterdir()} == {"small.json", "small.md", "small.csv"}
    assert "FedBBQ all weight,fedbbq[weighting=all]" in (out / "small.csv").read_text("utf-8")
    refused("holds small: --overwrite", reproduce, small, out=out)


def test_a_claim_compares_cells():
    def row(title, rounds, mean, loses=False):
        return {"title": title, "rounds": rounds, claims.MEAN: mean, "loses_accuracy": loses}

    rows = [row("a", 1, 0.4), row("a", 3, 0.1), row("b", None, 0.2), row("c", None, 0.05, True)]
    for below, above, holds in (
        ("a", "b", False),  # each of them
        ({"title": "a", "of": "min"}, "b", True),
        ({"title": "a", "rounds": "most"}, {"title": ["b", "c"]}, True),  # c loses accuracy
        ("c", "a", False),
        ({"title": "a", "key": claims.MEAN, "of": "ratio"}, 4.1, True),
        ("b", {"title": "a", "rounds": 3, "times": 2.0}, False),  # equal
        ("a", "d", None),
    ):
        assert claims.compared([(below, above)])(rows) is holds


# -- the check -----------------------------------------------------------------------------------


def studies(*words: str) -> int:
    with pytest.raises(SystemExit) as left:
        main([*words])
    return int(left.value.code or 0)


def test_check_says_what_deviates(small, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(expected, "FOLDER", tmp_path)
    given = (small, "--seeds", "1", "--jobs", "1")
    assert studies(*given, "--check") == 2
    assert "no expected results of small" in capsys.readouterr().err
    assert studies(*given, "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["name"] == small
    assert {c["title"] for c in record["cells"]} >= {"Base", "FedBBQ", "FedNewton"}

    write(small, content(reproduce(small, seeds=1, jobs=1)), "abc1234")
    assert studies(*given, "--check") == 0
    out = capsys.readouterr().out
    for words in ("all results are as expected", "FedBBQ all weight", "Undecided"):
        assert words in out

    results = read(small)["results"]
    results[1]["classwise_ece"][0] *= 2
    write(small, results, "abc1234")
    assert studies(*given, "--check", "--quiet") == 1
    out, err = capsys.readouterr()
    first, last = err.splitlines()
    assert out == ""
    assert first.startswith("fedcal: deviation: small: net, paper, FedBBQ")
    assert last == "fedcal: error: small: 1 deviations from what is expected"

    monkeypatch.setattr("experiments.__main__.EXPERIMENTS", [small])
    every = ("all", "--jobs", "1", "--out", str(tmp_path / "out"))
    write(small, results, "abc1234", 90.0)
    for words in ("1 studies, 90 processor minutes; 0 are in", "0 studies, 0 processor minutes; 1"):
        assert studies(*every) == 0
        assert words in capsys.readouterr().out
    assert studies(*every, "--check") == 1  # of the results that lie there


FILES = sorted(path.stem for path in expected.FOLDER.glob("*.json"))


@pytest.mark.parametrize("name", FILES)
def test_a_file_has_the_verdicts_that_are_kept_by_hand(name):
    assert {*FILES} == {*EXPERIMENTS} - {"small"}
    assert wrong_verdicts(shipped(name)) == []


def test_a_seed_on_a_small_network_is_as_expected(monkeypatch):
    kept, network = shipped("maddock-table3"), "imdb-binary"
    one = replace(kept.experiment, networks=[network])
    monkeypatch.setattr(run, "experiment", lambda name: one)
    found = run.reproduce("maddock-table3", seeds=1, jobs=1)
    mine = [row for row in kept.rows if row["network"] == network]
    assert deviations(found, replace(kept, rows=mine)) == []
    assert len(found.rows) > 8


def test_all_of_several_is_decided_by_the_one_that_fails():
    same = claims.larger(1.0, 1.1, margin=0.2)
    assert (same, claims.larger(1.0, 0.5, 0.2)) == ("no difference", True)
    several = ([True, same, None, False], [True, same, None], [True, same], [True], [])
    assert [claims.all_of(each) for each in several] == [False, None, same, True, None]


@pytest.mark.parametrize("paper", texts.PAPERS)
def test_every_item_of_a_paper_has_a_verdict_and_a_place_that_exists(paper):
    assert [fault for item in texts.items(paper) for fault in item.faults] == []


@pytest.mark.parametrize("page", texts.pages(), ids=lambda page: page.name)
def test_a_page_is_what_its_results_make_of_it(page):
    text = page.read_text("utf-8")
    assert texts.filled(text) == text, "run `python -m experiments.studies.texts`"
