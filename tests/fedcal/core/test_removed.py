"""Removed features, extras, and versions of Flower: refused in a line that says what to use."""

import re
import tomllib
from itertools import product
from pathlib import Path

import flwr
import pytest
from flwr.supernode.runtime import run_clientapp as flower
from refusals import refused

from fedcal.cli.main import COMMANDS, exit_code_of
from fedcal.core import flower_internals
from fedcal.core import flower_internals_site as internals
from fedcal.core.checks import REMOVED

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads(Path(ROOT, "pyproject.toml").read_text("utf-8"))["project"]
GONE = [name for name in REMOVED if name.startswith("fedcal ")]
LINES = [
    *((" ".join([*name.split()[1:], more]), name) for name, more in product(GONE, ("", "--help"))),
    *((f"simulate --{name}", name) for name in REMOVED if name.startswith("method ")),
    *((f"train --data adult-features {n}", n) for n in REMOVED if n.startswith("--model ")),
    *((f"simulate --method conformal --set {n}", n) for n in ("score=margin", "quantile=unary")),
    ("simulate --method conformal --set guarantee=1", "--set guarantee"),
    ("evaluate --release r.npz --since r.npz", "fedcal evaluate --since"),
    ("evaluate --set confusion=true --data heart-disease", "confusion"),
]


def test_a_command_that_was_removed_says_what_to_use(capsys):
    for line, name in LINES:
        assert exit_code_of(line.split()) == 2
        expected = f"fedcal: error: {name} was removed in 0.3: {REMOVED[name]}\n"
        assert capsys.readouterr() == ("", expected)
        for file in re.findall(r"(?:docs|examples)/\S+\.(?:md|py)", expected):
            assert Path(ROOT, file).is_file()
    assert not {name.removeprefix("fedcal ") for name in GONE} & {*COMMANDS}


INSTALL = r"; pip install 'fedcal\[sites\]' \(flwr==1\.39\.0\)$"


def test_a_flower_that_was_not_tried_is_refused(monkeypatch):
    internals.check_flower()
    assert PROJECT["optional-dependencies"]["sites"] == [f"flwr=={internals.KNOWN}"]
    for name in (*internals.REPLACED, "run_clientapp"):
        with monkeypatch.context() as patch:
            patch.delattr(flower, name)
            refused(f"has no {name} in flwr.supernode.*{INSTALL}", internals.check_flower)
    with monkeypatch.context() as patch:
        patch.setattr(flower, "run_clientapp", lambda runtime_api_address, token: None)
        refused(f"run_clientapp without insecure.*{INSTALL}", internals.check_flower)
    monkeypatch.setattr(flwr, "__version__", "1.39.1")
    refused(rf"^flwr 1.39.1 was not tested: .*{INSTALL}", internals.check_flower)


def test_a_reply_that_stays_in_pieces_is_given_up(monkeypatch):
    """Flower's own pull, of a part that never comes: it would wait for three minutes."""
    from flwr.supercore.inflatable import inflatable_utils as flower_parts

    monkeypatch.setattr(
        flower_parts.pull_objects, "__kwdefaults__", {**flower_parts.pull_objects.__kwdefaults__}
    )
    flower_internals.limit_pulls(0.2)

    asked = []

    def nothing(part):
        asked.append(part)
        assert len(asked) < 4, "it is still waited for"
        raise flower_parts.ObjectUnavailableError(part)

    with pytest.raises(flower_parts.ObjectPullError, match="timeout"):
        flower_parts.pull_objects(["a part"], nothing)
