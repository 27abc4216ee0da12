"""The resolved configuration: one set of names for command line, TOML and Python."""

import math
from typing import Any

import numpy as np
from refusals import each_is_refused, refused

from fedcal import __version__
from fedcal.core.shards import Shards
from fedcal.experiments.runs.config import (
    METHODS,
    POOLED,
    Config,
    check_settings,
    load_config,
    merge,
    parse_setting,
)
from fedcal.experiments.runs.jobs import job_of
from fedcal.privacy.federation import MOST_ROUNDS, QUORUM
from fedcal.strategies import STRATEGIES
from fedcal.strategies.methods.steps.newton_steps import CLIP
from fedcal.strategies.settings import settings_of


def test_the_defaults_are_the_contract_s():
    c = Config()
    assert (c.data, c.clients or 100, c.partition) == ("resnet110-cifar10", 100, "dirichlet:0.1")
    assert (c.sampling_rate, c.delta, c.unit, c.epsilon) == (1.0, 1e-5, "user", math.inf)
    assert (c.trust, c.engine, c.secure_aggregation, c.seed) == (None, "inline", None, 0)
    assert (c.mechanism, c.quorum, c.noise_source) == ("auto", 0.9, "seeded")
    defaults = {m: {k: p.default for k, p in settings_of(m).items()} for m in STRATEGIES}
    assert (CLIP, defaults["fedtemp"]["clip"]) == (0.5, None)  # with privacy, and none without
    assert (defaults["fedbin"]["weighting"], defaults["fedbbq"]["weighting"]) == ("none", "all")


def test_a_config_is_of_one_version(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(Config(method="acct").to_toml().replace(__version__, "0.1.0"))
    refused(r"written by fedcal '0\.1\.0', .* delete its line 'version'$", load_config, path, {})
    path.write_text("method = 'acct'\n")  # a person's own
    assert load_config(path, {}).method == "acct"


def test_every_method_takes_its_own_parameters_and_no_other():
    assert {*STRATEGIES, *POOLED} == {*METHODS}
    assert len(METHODS) == len({*METHODS})
    for method in METHODS:
        names = settings_of(method)
        assert bool(names) <= (method not in POOLED)
        check_settings(method, {name: p.default for name, p in names.items()})
        refused("unknown --set key 'nonsense'", check_settings, method, {"nonsense": 1})


def test_a_setting_is_toml_or_text():
    for text, key, value in (
        ("clip=0.5", "clip", 0.5),
        ("points=7", "points", 7),
        ("flag=true", "flag", True),
        ("average=temperature", "average", "temperature"),
        ('average="temperature"', "average", "temperature"),
        (" clip = 2 ", "clip", 2),
        ("name=a=b", "name", "a=b"),
        ("name=", "name", ""),
    ):
        name, found = parse_setting(text)
        assert (name, found, type(found)) == (key, value, type(value))
    none = ("clip", "=1", " =1", "a={}", "a=1979-05-27")
    each_is_refused(((text, "") for text in none), parse_setting)


def test_layers_that_are_refused():
    many = r"clients must be a whole number in \[1, 10000000\]"
    rounds = r"rounds must be a whole number in \[1, 100000\]"
    table: list[tuple[dict[str, Any], str]] = [
        ({"metod": "fedtemp"}, "metod"),
        ({"epsilon": "1"}, "epsilon"),
        ({"delta": None, "cap": "1"}, "cap"),
        ({"set": 3}, "set"),
        ({"clients": True}, "clients"),
        *(({"clients": clients}, many) for clients in (0, 10**7 + 1, 10**23)),
        *(({"rounds": k}, rounds) for k in (0, MOST_ROUNDS + 1, 10**8)),
        ({"seed": 1.0}, "seed"),
        ({"dropout": math.nan}, "dropout"),
        ({"cap": 1.0}, "cap"),
        ({"ledger": "l.db"}, "ledger"),
        ({"method": "none", "epsilon": 1.0}, "epsilon"),
        *(
            ({"epsilon": epsilon, "trust": trust, "quorum": 0.5}, r"quorum = 0\.5 has no effect")
            for epsilon, trust in ((math.inf, "secagg"), (1.0, "central"), (1.0, "local"))
        ),
    ]
    each_is_refused(table, merge)
    near = (("FedNewton", "fednewton"), ("fednewtn", "fednewton"), ("FEDBBQ", "fedbbq"))
    meant = [(given, f"did you mean '{name}'") for given, name in near]
    each_is_refused(meant, lambda method: Config(method=method))
    assert Config(rounds=MOST_ROUNDS).rounds == MOST_ROUNDS
    assert Config(epsilon=1.0, trust="local", quorum=QUORUM)
    assert Config(epsilon=1.0, trust="distributed", quorum=0.5)


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
    refused("'epsilon' must be a number", load_config, file, {"epsilon": 1.0})


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
