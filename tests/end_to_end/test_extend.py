"""`docs/guide/extend.md`, followed to the letter in a copy: what is new is taken by its row."""

import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from fedcal import InProcessGrid, simulate
from fedcal.cli.main import exit_code_of
from fedcal.core.checks import InputError
from fedcal.privacy import Federation
from fedcal.privacy.query import QUERIES
from fedcal.strategies import STRATEGIES
from fedcal.strategies.server.job import Job

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guide" / "extend.md"
METHODS, MECHANISM, UNIT = ("fedgap", "fedranks", "fedsmooth"), "composed-laplace", "entry"


@dataclass
class Recipe:
    """A section of the page: whole files, rows (path, what is added there), what is typed."""

    files: dict[str, str] = field(default_factory=dict)
    rows: list[tuple[str, str]] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)


def recipes() -> list[Recipe]:
    """Return all sections with a file or a row in them."""
    found = []
    for section in PAGE.read_text("utf-8").split("\n## ")[1:]:
        recipe, end = Recipe(), 0
        for block in re.finditer(r"^```(\S+).*?\n(.*?)^```$", section, re.DOTALL | re.MULTILINE):
            before = re.sub(r"<!--.*?-->", "", section[end : block.start()]).strip()
            end = block.end()
            if block[1] == "{literalinclude}":
                (name,) = re.findall(r"^`([\w/]+\.py)`:$", before, re.M)
                recipe.files[name] = (PAGE.parent / block[0].split()[1]).read_text("utf-8")
            elif block[1] == "diff":
                recipe.rows.append((re.findall(r"`([\w/]+\.py)`", before)[-1], block[2]))
            elif block[1] == "console":
                recipe.commands += [line[2:] for line in block[2].splitlines() if line[:2] == "$ "]
        if recipe.files or recipe.rows:
            found.append(recipe)
    return found


def follow(recipe: Recipe, copy: Path) -> None:
    """Write the files and add the rows; lines without a sign stand in a file exactly once."""
    for name, text in recipe.files.items():
        assert not (copy / name).exists(), name
        (copy / name).write_text(text, "utf-8")
    for name, block in recipe.rows:
        text = (copy / name).read_text("utf-8")
        for hunk in block.split("@@\n"):
            lines = hunk.splitlines(keepends=True)
            old = "".join(line[1:] for line in lines if line[0] in " -")
            assert text.count(old) == 1, f"{name}: {old!r}"
            text = text.replace(old, "".join(line[1:] for line in lines if line[0] in " +"))
        (copy / name).write_text(text, "utf-8")


SCRIPT = """
import shlex, sys, warnings
warnings.simplefilter("ignore")
from fedcal.cli.main import exit_code_of
import fedcal
assert fedcal.__file__.startswith(sys.argv[1]), fedcal.__file__
for command in sys.argv[2:]:
    print("$", command, flush=True)
    code = exit_code_of(shlex.split(command)[1:])
    assert code == 0, (command, code)
"""


def test_the_page_s_commands_run_and_new_members_go_together_with_all_others(tmp_path):
    copy, here = tmp_path / "copy", tmp_path / "here"
    here.mkdir()
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "fedcal", copy / "fedcal", ignore=ignored)
    for package in ("clients", "strategies"):  # links stand for the map of `setup.py`
        shutil.copytree(ROOT / package, copy / package, ignore=ignored)
        (copy / "fedcal" / package).symlink_to(f"../{package}")
    typed = []
    for recipe in recipes():
        follow(recipe, copy)
        typed += recipe.commands
    assert len(typed) == 12
    common = "--epsilon 2 --clients 20 --json"
    more = [
        *(
            f"fedcal simulate --method {method} --trust {trust} {common}"
            for method, trust in zip(METHODS, ("local", "distributed", "distributed"), strict=True)
        ),
        f"fedcal simulate --method fedgap --trust local --mechanism {MECHANISM} {common}",
        f"fedcal simulate --method fedtemp --unit {UNIT} --mechanism {MECHANISM} {common}",
        *("fedcal simulate --help-all", "fedcal --help"),
    ]
    done = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT, str(copy), *typed, *more],
        cwd=here,
        env=os.environ | {"PYTHONPATH": str(copy), "COLUMNS": "160"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    parts = re.split(r"^\$ (.*)\n", done.stdout, flags=re.MULTILINE)
    output = dict(zip(parts[1::2], parts[2::2], strict=True))
    output["report"] = (here / "top-k" / "report.html").read_text("utf-8")
    for where, words in (
        (typed[0], ("fedgap on resnet110-cifar10", "(1, 1e-05)-DP for each user")),
        *((typed[1], ("FedGap",)), (typed[2], ("fedgap",))),
        ("report", ("Laplace noise", "Top-k accuracy", "Accuracy by k", "Counts are noisy.")),
        (typed[6], ("replacing one row by any other",)),
        (typed[8], ("Jaccard index, %",)),
        (typed[-1], ("smoothing, fitted on logits of 10 classes",)),
        ("fedcal --help", ("peek", "Show the contents of a calibrator's file")),
        ("fedcal simulate --help-all", (*METHODS, MECHANISM, UNIT, "lognormal")),
    ):
        assert [word for word in words if word not in output[where]] == []
    for command in more[:-2]:
        result, words = json.loads(output[command]), shlex.split(command)[2:-1]
        given = dict(zip(words[::2], words[1::2], strict=True))
        for option in ("unit", "trust", "mechanism"):
            privacy = result["privacy"]
            assert given.get(f"--{option}", privacy[option]) == privacy[option], command
        assert ("top_k" in result) is (result["method"] == "fedranks")
        if privacy["unit"] == UNIT:
            assert (privacy["adjacency"], privacy["diameter"]) == ("replace", 2)


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
    "engine", ["inline", *(pytest.param(e, marks=pytest.mark.slow) for e in ("ray", "flower"))]
)
def test_a_method_and_its_query_of_another_package_need_no_file_of_fedcal(own_package, engine):
    facts: dict[str, Any] = {"epsilon": 8.0, "clients": 6}
    result = simulate("heart-disease", method=own_package, engine=engine, out="run", **facts)
    assert result.artifact.counts.shape == (4,)
    assert exit_code_of(["simulate", "--config", "run/config.toml", "--quiet"]) == 0
    inline = simulate("heart-disease", method=own_package, **facts)
    np.testing.assert_array_equal(result.artifact.counts, inline.artifact.counts)
    fields = Job("acct", Federation(5, 3, epsilon=1.0)).to_fields() | {"method": own_package}
    STRATEGIES.pop(own_package)
    with pytest.raises(InputError, match="unknown method"):  # what a site makes of a message
        Job.from_fields(fields)


# -- a Flower app of somebody else's, and the few lines that fedcal needs in it -------------------

APP = Path(__file__).parent / "app"
PACKAGE = "someapp"


@pytest.fixture
def app(tmp_path):
    """The app with its diff applied."""
    copy = tmp_path / "app"
    shutil.copytree(APP, copy, ignore=shutil.ignore_patterns("__pycache__", "*.diff"))
    patch = APP / "fedcal.diff"
    subprocess.run(["git", "apply", "--unidiff-zero", patch], cwd=copy, check=True)
    return copy


@pytest.mark.filterwarnings("ignore:Converting a tensor")
def test_the_clients_answer_from_the_model_just_trained(app, tmp_path, monkeypatch):
    """In Flower's loop over five clients."""
    monkeypatch.syspath_prepend(str(app))
    client = importlib.import_module(f"{PACKAGE}.client_app").app
    server = importlib.import_module(f"{PACKAGE}.server_app").app
    out = tmp_path / "out"
    settings = {"num-server-rounds": 1, "learning-rate": 0.1, "out": str(out)}
    server(InProcessGrid(client, range(1, 6)), Context(1, 0, {}, RecordDict(), settings))
    for module in [m for m in sys.modules if m.partition(".")[0] == PACKAGE]:
        del sys.modules[module]
    result = json.loads((out / "result.json").read_text("utf-8"))
    assert result["privacy"]["epsilon"] == 2
    assert result["sites"] == {"enrolled": 5, "answered": 5, "absent": [], "missed": {}}
    assert "how it was trained, are not covered" in " ".join(result["privacy"]["more"])
    page = (out / "report.html").read_text("utf-8")
    assert "AfterTraining(" in page
    assert "without the guard, the policy and the ledger" in page
    accuracy = result["metrics"]["accuracy"]  # of the clients' test halves: 285 rows
    assert accuracy["high"] > 0.8  # chance is .63; noise and training differ each time
    assert accuracy["high"] - accuracy["low"] < 0.3
