"""What the commands show: percentages for people, progress on a terminal, files of rows."""

import json
import re
from collections import Counter

import pytest

from fedcal.cli.main import exit_code_of
from fedcal.core.options import options_of
from fedcal.privacy.privacy import Federation, Privacy
from fedcal.run.config import Config, RunOptions
from fedcal.run.training_config import TrainConfig
from fedcal.strategies.server.job import Books, Job, Running

pytestmark = pytest.mark.usefixtures("quick_figures")


BASELINE = "--method pooled-temperature"


@pytest.mark.parametrize(
    "words", [f"simulate {BASELINE}", "evaluate", f"compare {BASELINE} --seeds 1 --jobs 1"]
)
def test_a_report_may_come_later(words, tmp_path, capsys):
    asked = [*words.split(), "--data", "imdb-binary", "--quiet", "--out"]
    later = tmp_path / "later"
    assert exit_code_of([*asked, str(later), "--no-report"]) == 0
    names = {path.name for path in later.iterdir() if path.name[0] != "."}
    assert not any(name.endswith((".html", ".png", ".svg")) for name in names)
    capsys.readouterr()
    assert exit_code_of(["report", str(later), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"out": str(later / "report.html")}
    assert exit_code_of([*asked, str(tmp_path / "now")]) == 0
    now = {path.name for path in (tmp_path / "now").iterdir()}
    assert names < {path.name for path in later.iterdir()} == now


def test_help_shows_what_most_use_and_help_all_every_option(capsys):
    shown = {}
    for word in ("--help", "--help-all"):
        assert exit_code_of(["simulate", word]) == 0
        shown[word] = set(re.findall(r"^[│| ]+(--[a-z-]+)", capsys.readouterr().out, re.MULTILINE))
    every = {f"--{name.replace('_', '-')}" for name in options_of(Config)}
    assert every <= shown["--help-all"]
    assert len(shown["--help"] & every) == 13
    assert not shown["--help"] & {"--committee", "--quorum", "--control", "--ledger"}


def test_each_option_of_a_run_is_declared_once():
    """Whoever adds an option writes it in one class; another default names what it changes."""
    tables = [Privacy, Federation, Books, Running, RunOptions, Config, Job, TrainConfig]
    declared = Counter(name for table in tables for name in vars(table)["__annotations__"])
    twice = {name for name, count in declared.items() if count > 1}
    others = {"secure_aggregation", "timeout", "grace"}  # a job's own defaults
    others |= {"unit", "rounds", "sampling_rate"}  # a training's
    others |= {"clients", "committee", "colluding"}  # what a run leaves open, a federation says
    others |= {"data", "method", "partition"}  # of a training, and of a job, others
    assert twice == others
