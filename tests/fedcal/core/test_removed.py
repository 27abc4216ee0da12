"""What was removed is refused in one line that says what to use instead, and that is there."""

import re
from itertools import product
from pathlib import Path

import pytest
from refusals import each_is_refused

import fedcal
from fedcal.cli.main import COMMANDS, exit_code_of
from fedcal.core.checks import REMOVED

GONE = [name for name in REMOVED if name.startswith("fedcal ")]
TYPED = [*product(GONE, ("", "--help", "stages.toml --out stages"))]


@pytest.mark.parametrize(("name", "more"), TYPED)
def test_a_command_that_was_removed_says_what_to_use(name, more, capsys):
    words = name.split()[1:]
    assert exit_code_of([*words, *more.split()]) == 2
    said = capsys.readouterr()
    line = f"fedcal: error: {name} was removed in 0.3: {REMOVED[name]}\n"
    assert (said.out, said.err) == ("", line)
    assert " ".join(words) not in COMMANDS
    for file in re.findall(r"(?:docs|examples)/\S+\.(?:md|py)", line):
        assert (Path(fedcal.__file__).parents[1] / file).is_file()


def test_data_that_are_no_longer_read_say_what_to_use(tmp_path):
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "state.json").write_text("{}")
    (tmp_path / "rows.arrow").touch()
    table = [
        (tmp_path / "rows.arrow", r"reading \.arrow was removed in 0\.3: write .*\.parquet"),
        (tmp_path / "rows.feather", r"reading \.feather was removed in 0\.3"),
        (tmp_path / "saved", r"reading a folder .* removed in 0\.3: write it with .*to_parquet"),
    ]
    each_is_refused(table, lambda data: fedcal.simulate(data, partition="natural"))


EVALUATE = {
    "--estimand clients --data heart-disease": "fedcal evaluate --estimand",
    "--release r.npz --since r.npz": "fedcal evaluate --since",
    "--release r.npz --recall 0.9": "fedcal evaluate --recall",
    "--release r.npz --confident": "fedcal evaluate --confident",
    "--only accuracy --data heart-disease": "fedcal evaluate --only",
    "--set confusion=true --data heart-disease": "confusion",
}
SETTINGS = ("guarantee", "confidence", "costs", "among", "weigh", "report")
METHODS = [name for name in REMOVED if name.startswith("method ")]
LINES = [
    *((f"{c} --{name}", name) for name in METHODS for c in ("simulate", "compare")),
    *((f"train --data adult-features {n}", n) for n in REMOVED if n.startswith("--model ")),
    *((f"simulate --method conformal --set {n}", n) for n in ("score=margin", "quantile=unary")),
    *((f"simulate --method conformal --set {n}=1", f"--set {n}") for n in SETTINGS),
    *((f"evaluate {options}", name) for options, name in EVALUATE.items()),
]


@pytest.mark.parametrize(("line", "name"), LINES)
def test_what_was_removed_of_a_command_says_what_to_use(line, name, capsys):
    assert exit_code_of(line.split()) == 2
    said = f"fedcal: error: {name} was removed in 0.3: {REMOVED[name]}\n"
    assert capsys.readouterr() == ("", said)
