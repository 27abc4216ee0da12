"""`fedcal site --policy`: what is wrong with it is said before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedcal.errors import InputError
from fedcal.experiments.deploy.site import check_policy

TEXT = """
methods = ["fedtemp", "fednewton"]
unit = ["example"]
trust = ["local"]
adjacency = ["replace"]
rounds = 5
expires = 2030-01-01
secure-aggregation = "any"
"""


def test_methods_and_settings_are_those_of_this_fedcal(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text(TEXT + "[settings.fedtemp]\nserver_lr = [0.1, 1]\n")
    check_policy(file)
    file.write_text(TEXT + "[settings.fedtemp]\nserver_l = [0.1, 1]\n")
    with pytest.raises(InputError, match=r"setting of fedtemp in .*did you mean 'server_lr'"):
        check_policy(file)
    file.write_text(TEXT.replace("fednewton", "fednewtons"))
    with pytest.raises(InputError, match=r"method of .*did you mean 'fednewton'"):
        check_policy(file)
