"""`docs/guide/extend.md`, followed to the letter: what is new is taken everywhere, by its row.

A copy of the repository is extended by the page's files and rows. In it the page's commands are
run, and the tests of all members, which must have enrolled the new ones by themselves.
"""

import importlib
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from extending import ROOT, copied, follow, git, keep, recipes

from fedcal import simulate
from fedcal.cli.main import exit_code_of
from fedcal.core.checks import InputError
from fedcal.privacy import Federation
from fedcal.privacy.query import QUERIES
from fedcal.strategies import STRATEGIES
from fedcal.strategies.server.job import Job

METHODS, MECHANISM, UNIT = ("fedgap", "fedranks", "fedsmooth"), "composed-laplace", "entry"
PARTITION, METRIC, CALIBRATOR, COMMAND = "lognormal", "jaccard", "smoothing", "peek"


@dataclass
class Copy:
    """The repository with all that the page adds."""

    folder: Path
    changes: list[dict[str, str]] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)

    def python(self, *words: str, cwd: Path | None = None) -> str:
        """What an interpreter prints that finds the copy first."""
        done = subprocess.run(
            [sys.executable, "-P", *words],
            cwd=cwd or self.folder,
            env=os.environ | {"PYTHONPATH": str(self.folder), "COLUMNS": "160"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
        return done.stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    if not (ROOT / ".git").exists():
        pytest.skip("no repository: nobody knows which files are its own")
    made = Copy(copied(tmp_path_factory.mktemp("extended") / "copy"))
    for recipe in recipes():
        follow(recipe, made.folder)
        git(made.folder, "add", "--all")
        told = git(made.folder, "diff", "--cached", "--name-status").splitlines()
        made.changes.append({name: status for status, name in (line.split("\t") for line in told)})
        made.commands += recipe.commands
        keep(made.folder)
    return made


SCRIPT = """
import json, shlex, sys, warnings
warnings.simplefilter("ignore")
from fedcal.cli.main import exit_code_of
import fedcal
assert fedcal.__file__.startswith(sys.argv[1]), fedcal.__file__
for command in json.loads(sys.argv[2]):
    print("$", command, flush=True)
    code = exit_code_of(shlex.split(command)[1:])
    assert code == 0, (command, code)
"""


@pytest.fixture(scope="module")
def told(copy, tmp_path_factory):
    """Command -> what it printed: the page's, and each new member under each trust and unit."""
    common = "--epsilon 2 --clients 20 --json"
    trusts = ("central", "distributed", "local", "local", "central", "distributed")
    pairs = zip(METHODS * 2, trusts, strict=True)
    more = [
        *(f"fedcal simulate --method {m} --trust {t} {common}" for m, t in pairs),
        f"fedcal simulate --method fedranks --unit {UNIT} {common}",
        f"fedcal simulate --method fedgap --trust local --mechanism {MECHANISM} {common}",
        f"fedcal simulate --method fedtemp --unit {UNIT} --mechanism {MECHANISM} {common}",
        *("fedcal simulate --help-all", "fedcal --help"),
    ]
    commands = [*copy.commands, *more]
    here = tmp_path_factory.mktemp("here")
    out = copy.python("-c", SCRIPT, str(copy.folder), json.dumps(commands), cwd=here)
    parts = re.split(r"^\$ (.*)\n", out, flags=re.MULTILINE)
    assert parts[1::2] == commands
    page = (here / "top-k" / "report.html").read_text("utf-8")
    return {**dict(zip(commands, parts[2::2], strict=True)), "report": page}


def test_the_page_s_commands_run_and_the_help_names_what_is_new(copy, told):
    assert len(copy.commands) == 12
    simulated, compared, planned = copy.commands[:3]
    for where, words in (
        (simulated, ("fedgap on resnet110-cifar10", "(1, 1e-05)-DP for each user")),
        *((compared, ("FedGap",)), (planned, ("fedgap",))),
        ("report", ("Laplace noise", "Top-k accuracy", "Accuracy by k", "Counts are noisy.")),
        (copy.commands[6], ("replacing one row by any other",)),
        (copy.commands[8], ("Jaccard index, %",)),
        (copy.commands[-1], ("smoothing, fitted on logits of 10 classes",)),
        ("fedcal --help", (COMMAND, "Show the contents of a calibrator's file.")),
    ):
        assert [word for word in words if word not in told[where]] == []
    for name in (*METHODS, MECHANISM, UNIT, PARTITION):
        assert re.search(rf"(?<![\w-]){name}(?![\w-])", told["fedcal simulate --help-all"]), name


def test_a_query_is_a_file_and_a_row_and_its_method_another(copy):
    added = copy.changes[1]
    assert {name: status for name, status in added.items() if not name.startswith("docs/")} == {
        "clients/questions/label_ranks.py": "A",
        "clients/questions/__init__.py": "M",
        "strategies/methods/fedranks.py": "A",
        "strategies/__init__.py": "M",
    }


def test_new_members_go_together_with_all_others(told):
    results: dict[str, Any] = {
        command: json.loads(out) for command, out in told.items() if command.endswith("--json")
    }
    for command, result in results.items():
        privacy, words = result["privacy"], command.split()[2:-1]
        given = dict(zip(words[::2], words[1::2], strict=True))
        for option in ("unit", "trust", "mechanism"):
            assert given.get(f"--{option}", privacy[option]) == privacy[option], command
        assert ("top_k" in result) is (result["method"] == "fedranks")
        assert ("after" in result) is (result["method"] != "fedranks")
        if privacy["unit"] == UNIT:
            assert (privacy["adjacency"], privacy["diameter"]) == ("replace", 2)
        if privacy["mechanism"] == MECHANISM:
            assert privacy["delta"] == 1e-5
    assert len(results) == 9


def test_a_method_of_another_package_needs_no_change(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.py").write_text(recipes()[0].files["strategies/methods/fedgap.py"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(STRATEGIES, "mine:FedGap", None)  # gone afterwards
    del STRATEGIES["mine:FedGap"]
    options = "--epsilon 8 --clients 20 --quiet"
    assert exit_code_of(f"simulate --method mine:FedGap --out run {options}".split()) == 0
    result = json.loads((tmp_path / "run/result.json").read_text("utf-8"))
    assert result["method"] == "mine:FedGap"
    mine = importlib.import_module("mine").FedGap
    by_class = simulate("resnet110-cifar10", method=mine, epsilon=8.0, clients=20)
    assert by_class.after == pytest.approx(result["after"])
    assert exit_code_of(["simulate", "--config", "run/config.toml", "--quiet"]) == 0
    capsys.readouterr()
    refused = {"mine:Nobody": "no attribute", "mine:TemperatureScaling": "is not a method"}
    for name, said in {**refused, "nowhere:FedGap": "No module named"}.items():
        assert exit_code_of(f"simulate --method {name} {options}".split()) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert said in line
    fields = Job("acct", Federation(5, 3, epsilon=1.0)).to_fields() | {"method": "elsewhere:FedGap"}
    with pytest.raises(InputError, match="unknown method"):  # what a site makes of a message
        Job.from_fields(fields)


@pytest.fixture
def own_package(tmp_path, monkeypatch):
    """A package of two modules, a query and its method, outside of fedcal."""
    query, method = recipes()[1].files.values()
    (tmp_path / "ownpack").mkdir()
    (tmp_path / "ownpack/__init__.py").touch()
    (tmp_path / "ownpack/ranks.py").write_text(query.replace('"label_ranks"', '"own_ranks"'))
    there, here = "fedcal.clients.questions.label_ranks", "ownpack.ranks"
    (tmp_path / "ownpack/method.py").write_text(method.replace(there, here))
    monkeypatch.chdir(tmp_path)
    yield "ownpack.method:FedRanks"
    STRATEGIES.pop("ownpack.method:FedRanks", None)
    QUERIES.pop("own_ranks", None)
    for name in [name for name in sys.modules if name.partition(".")[0] == "ownpack"]:
        del sys.modules[name]


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of Ray
@pytest.mark.parametrize(
    "engine",
    ["inline", *(pytest.param(e, marks=pytest.mark.slow) for e in ("ray", "flower"))],
)
def test_a_method_and_its_query_of_another_package_need_no_file_of_fedcal(own_package, engine):
    facts: dict[str, Any] = {"epsilon": 8.0, "clients": 6}
    result = simulate("heart-disease", method=own_package, engine=engine, **facts)
    assert result.artifact.counts.shape == (4,)
    assert result.privacy["epsilon"] == 8.0
    assert set(QUERIES) >= {"own_ranks"}
    inline = simulate("heart-disease", method=own_package, **facts)
    np.testing.assert_array_equal(result.artifact.counts, inline.artifact.counts)


def test_two_queries_of_one_kind_are_refused(own_package, tmp_path):
    text = (tmp_path / "ownpack/ranks.py").read_text().replace("own_ranks", "class_counts")
    (tmp_path / "ownpack/ranks.py").write_text(text)
    with pytest.raises(InputError, match="are both questions of kind 'class_counts'"):
        simulate("heart-disease", method=own_package, epsilon=8.0, clients=6)
