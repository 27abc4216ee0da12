"""The resolved configuration: one set of names for command line, TOML and Python."""

import math
from typing import Any

import numpy as np
from refusals import refused

from fedcal import __version__
from fedcal.core.shards import Shards
from fedcal.run.config import Config, load_config, merge
from fedcal.run.jobs import job_of


def test_a_config_is_of_one_version(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(Config(method="acct").to_toml().replace(__version__, "0.1.0"))
    refused(r"written by fedcal '0\.1\.0', .* delete its line 'version'$", load_config, path, {})
    path.write_text("method = 'acct'\n")  # a person's own
    assert load_config(path, {}).method == "acct"


def test_what_is_given_wins_over_the_file(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text('method = "fedbin"\nclients = 7\n[set]\nbins_exponent = 5\n')
    mine = load_config(file, {"seed": 4, "clients": 8, "set": {"clip_negative": 2}})
    assert (mine.method, mine.seed, mine.clients) == ("fedbin", 4, 8)
    assert mine.set == {"bins_exponent": 5, "clip_negative": 2}
    refused("fedtemp", load_config, file, {"method": "fedtemp"})  # it has no bins


def test_the_number_of_rows_is_told_only_where_it_is_needed():
    rows, clients = 30, 10
    owner = np.arange(rows) % clients
    shards = Shards.from_owner(np.zeros((rows, 3)), np.zeros(rows, np.int64), owner, clients)
    example = {"unit": "example"}
    table: tuple[tuple[str, dict[str, Any], dict[str, Any], bool], ...] = (
        ("acct", {}, {}, True),
        ("acct", {}, {"clip": 5.0}, False),
        ("acct", {}, {"clip": 5.0, "search": "posterior"}, True),
        ("acct", example, {}, False),
        ("acct", example, {"search": "auto"}, True),
        ("nllt", example, {"search": "auto"}, False),
        ("dp-histogram", {}, {}, True),
        ("dp-histogram", {}, {"clip": 5.0}, False),
        ("dp-histogram", {"trust": "local", "mechanism": "unary"}, {}, False),
        ("fednewton", {}, {}, True),
        ("fednewton", example, {}, False),
        ("fednewton", {"epsilon": math.inf}, {}, False),
    )
    for method, more, given, needed in table:
        config = merge({"method": method, "epsilon": 1.0, **more, "set": given})
        settings = dict(job_of(config, shards).settings)
        assert settings == ({**given, "rows_per_client": 3.0} if needed else given)


def test_a_method_s_name_in_a_config_imports_nothing(tmp_path, monkeypatch):
    """Only what a user gives as an option may name code; a `Config` is made of more."""
    (tmp_path / "planted.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    refused("unknown method 'planted:Method'", Config, method="planted:Method")
