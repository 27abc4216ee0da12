"""Which versions of Flower a site runs with, and that what is named of Flower is there."""

import tomllib
from pathlib import Path

import flwr
import pytest
from flwr.supernode.runtime import run_clientapp as flower

from fedcal.core import flower_internals
from fedcal.core import flower_internals_site as internals
from fedcal.core.checks import InputError

ROOT = Path(__file__).parents[3]
INSTALL = r"; pip install 'fedcal\[sites\]' \(flwr==1\.39\.0\)$"


def test_the_extra_the_constraints_and_the_pages_name_what_was_tried():
    internals.check_flower()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    version = internals.KNOWN
    assert project["optional-dependencies"]["sites"] == [f"flwr=={version}"]
    assert f"flwr=={version}" in (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    assert f"({version})" in (ROOT / "docs/guide/site.md").read_text("utf-8")


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


@pytest.mark.parametrize("version", ["1.38.0", "1.39.1", "1.42.0", ""])
def test_a_flower_that_was_not_tried_is_refused(monkeypatch, version):
    monkeypatch.setattr(flwr, "__version__", version)
    with pytest.raises(InputError, match=rf"^flwr {version} was not tested: .*{INSTALL}"):
        internals.check_flower()
    monkeypatch.setenv("FEDCAL_HTTP_FLEET", "1")
    with pytest.raises(InputError, match="FEDCAL_HTTP_FLEET was removed in"):
        internals.check_flower()


def test_a_flower_of_another_runtime_is_refused(monkeypatch):
    for name in (*internals.REPLACED, "run_clientapp"):
        with monkeypatch.context() as patch:
            patch.delattr(flower, name)
            with pytest.raises(InputError, match=f"has no {name} in flwr.supernode.*{INSTALL}"):
                internals.check_flower()
    monkeypatch.setattr(flower, "run_clientapp", lambda runtime_api_address, token: None)
    with pytest.raises(InputError, match=f"run_clientapp without insecure.*{INSTALL}"):
        internals.check_flower()
