"""The resolved configuration: one set of names for command line, TOML and Python."""

import math
from typing import Any

import numpy as np
from refusals import refused

from fedcal import __version__
from fedcal.core.shards import Shards
from fedcal.experiments.runs.config import (
    Config,
    load_config,
    merge,
)
from fedcal.experiments.runs.jobs import job_of


def test_a_config_is_of_one_version(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(Config(method="acct").to_toml().replace(__version__, "0.1.0"))
    refused(r"written by fedcal '0\.1\.0', .* delete its line 'version'$", load_config, path, {})
    path.write_text("method = 'acct'\n")  # a person's own
    assert load_config(path, {}).method == "acct"


def test_what_follows_from_an_overridden_value_is_resolved_anew(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text(
        'method = "fednewton"\nepsilon = inf\nrounds = 8\ntrust = "secagg"\nclients = 7\n'
        'secure_aggregation = "none"\n[set]\nrows_per_client = 3.0\n'
    )
    rows = {"rows_per_client": 3}
    same = load_config(file, {"seed": 4})
    assert (same.rounds, same.trust, same.set, same.seed) == (8, "secagg", rows, 4)
    private = load_config(file, {"epsilon": 1.0})
    assert (private.rounds, private.trust, private.set) == (8, None, rows)
    other = load_config(file, {"method": "fedbin", "set": {"bins_exponent": 3}})
    assert (other.rounds, other.set, other.clients) == (None, {"bins_exponent": 3}, 7)
    file.write_text("epsilon = 1.0\nrounds = 5\n")
    assert load_config(file, {"epsilon": 2.0}).rounds == 5
    # written by hand: nothing in it was resolved from what it does not name
    file.write_text("rounds = 5\n[set]\nclip = 0.3\n")
    mine = load_config(file, {"method": "fedtemp", "epsilon": 1.0})
    assert (mine.rounds, mine.set) == (5, {"clip": 0.3})
    file.write_text('epsilon = "much"\n')
    refused("epsilon must be a", load_config, file, {"epsilon": 1.0})


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


def test_what_was_given_stays_but_for_what_belongs_to_the_overridden(tmp_path):
    file = tmp_path / "given.toml"
    given = Config(epsilon=1.0, rounds=3, trust="distributed", quorum=0.5)
    file.write_text(given.to_toml())
    other = load_config(file, {"trust": "central"})
    assert (other.rounds, other.trust, other.quorum) == (3, "central", 0.9)
    exact = load_config(file, {"epsilon": math.inf})
    assert (exact.rounds, exact.trust, exact.quorum) == (3, None, 0.9)
    fact = {"rows_per_client": 9.0}
    file.write_text(Config(method="acct", epsilon=1.0, set={**fact, "low": 0.4}).to_toml())
    assert load_config(file, {"clients": 7, "data": "imdb-binary"}).set == {**fact, "low": 0.4}
    assert load_config(file, {"method": "fednewton"}).set == fact
    assert load_config(file, {"method": "fedbin"}).set == {}


def test_a_method_s_name_in_a_config_imports_nothing(tmp_path, monkeypatch):
    """Only what a user gives as an option may name code; a `Config` is made of more."""
    (tmp_path / "planted.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    refused("unknown method 'planted:Method'", Config, method="planted:Method")
