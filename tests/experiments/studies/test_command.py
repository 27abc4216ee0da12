"""`python -m experiments`: one clear line for what is not allowed, the check's exit code."""

import json

import pytest

from experiments.__main__ import main
from experiments.studies import expected
from experiments.studies.expected import content, read, write
from experiments.studies.run import reproduce


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
    told = json.loads(capsys.readouterr().out)
    assert told["name"] == small
    assert {c["title"] for c in told["cells"]} >= {"Base", "FedBBQ", "FedNewton"}

    write(small, content(reproduce(small, seeds=1, jobs=1)), "abc1234")
    assert studies(*given, "--check") == 0
    out = capsys.readouterr().out
    for words in ("all results are as expected", "FedBBQ all weight", "Not told here"):
        assert words in out

    results = read(small)["results"]
    results[1]["classwise_ece"][0] *= 2
    write(small, results, "abc1234")
    assert studies(*given, "--check", "--quiet") == 1
    out, err = capsys.readouterr()
    first, last = err.splitlines()
    assert out == ""
    assert first.startswith("fedcal: deviation: imdb-binary, paper, FedBBQ")
    assert last == "fedcal: error: small: 1 deviations from what is expected"
