"""What was removed is refused in one line that says what to use instead, and that is there."""

import re
from itertools import product

import pytest
from extending import ROOT
from refusals import each_is_refused

import fedcal
from fedcal.core.checks import REMOVED
from fedcal.experiments.cli.main import COMMANDS, _run

STUDIES = [name for name in REMOVED if name.startswith("fedcal reproduce ")]
ALONE = [name for name in REMOVED if name.startswith("fedcal ") and name not in STUDIES]
TYPED = [*product(ALONE, ("", "--help", "stages.toml --out stages")), *product(STUDIES, [""])]


@pytest.mark.parametrize(("name", "more"), TYPED)
def test_a_command_that_was_removed_says_what_to_use(name, more, capsys):
    words = name.split()[1:]
    assert _run([*words, *more.split()]) == 2
    said = capsys.readouterr()
    line = f"fedcal: error: {name} was removed in 0.3: {REMOVED[name]}\n"
    assert (said.out, said.err) == ("", line)
    assert " ".join(words) not in COMMANDS
    for file in re.findall(r"(?:docs|examples)/\S+\.(?:md|py)", line):
        assert (ROOT / file).is_file()


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
