"""What was removed is refused in one line that says what to use instead, and that is there."""

import re

import pytest
from extending import ROOT

from fedcal.core.removed import REMOVED
from fedcal.experiments.cli.main import COMMANDS, _run


@pytest.mark.parametrize("more", ["", "--help", "stages.toml --out stages"])
@pytest.mark.parametrize("name", [name for name in REMOVED if name.startswith("fedcal ")])
def test_a_command_that_was_removed_says_what_to_use(name, more, capsys):
    words = name.split()[1:]
    assert _run([*words, *more.split()]) == 2
    said = capsys.readouterr()
    line = f"fedcal: error: {name} was removed in 0.3: {REMOVED[name]}\n"
    assert (said.out, said.err) == ("", line)
    assert " ".join(words) not in COMMANDS
    for file in re.findall(r"examples/\S+\.py", line):
        assert (ROOT / file).is_file()


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ("--estimand clients --data heart-disease", "estimand=clients"),
        ("--release r.npz --recall 0.9", "fedcal evaluate --recall"),
        ("--release r.npz --confident", "fedcal evaluate --confident"),
        ("--only mcc --data heart-disease", "mcc"),
        ("--set confusion=true --data heart-disease", "confusion"),
    ],
)
def test_an_option_of_evaluate_that_was_removed_says_what_to_use(options, name, capsys):
    assert _run(["evaluate", *options.split()]) == 2
    line = f"fedcal: error: {name} was removed in 0.3: {REMOVED[name]}\n"
    assert capsys.readouterr().err == line
