"""`fedcal site --policy`: what is wrong with it is said before anything starts."""

import logging
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

from fedcal.clients.site.account import OWN_NOISE, JobFacts
from fedcal.clients.site.prepared import FEDERATION
from fedcal.clients.site.site_log import LOGGER
from fedcal.clients.site.store import RECORDS, SiteRecords
from fedcal.core.classes import digest_of
from fedcal.core.errors import FedcalError
from fedcal.experiments.cli.main import _run
from fedcal.experiments.deploy import site
from fedcal.experiments.deploy.site import check_federation, check_policy
from fedcal.secure_aggregation.committee import Committee
from fedcal.secure_aggregation.keys import SigningKey, make_key
from fedcal.secure_aggregation.roster import Member, Roster

TEXT = """
methods = ["fedtemp", "fednewton"]
unit = ["example"]
trust = ["local"]
adjacency = ["replace"]
rounds = 5
expires = 2030-01-01
secure-aggregation = "any"
"""


def test_methods_and_settings_are_those_of_this_fedcal(tmp_path):
    file = tmp_path / "site.toml"
    file.write_text(TEXT + "[settings.fedtemp]\nserver_lr = [0.1, 1]\n")
    check_policy(file)
    file.write_text(TEXT + "[settings.fedtemp]\nserver_l = [0.1, 1]\n")
    refused(r"setting of fedtemp in .*did you mean 'server_lr'", check_policy, file)
    file.write_text(TEXT.replace("fednewton", "fednewtons"))
    refused(r"method of .*did you mean 'fednewton'", check_policy, file)


def test_a_site_with_unfinished_jobs_stays_in_its_federation(tmp_path):
    keys = [SigningKey(bytes([n]) * 32) for n in range(3)]
    sites = tuple(Member(f"site {n}", key.public) for n, key in enumerate(keys))
    first = Roster("hearts", sites, Committee((0, 1, 2), 2))
    other = replace(first, name="lungs")
    state = tmp_path / "state"
    state.mkdir()
    for folder, roster in ((state, first), (tmp_path, other)):
        (folder / FEDERATION).write_text(roster.to_toml())
    new = tmp_path / FEDERATION
    check_federation(state, new)  # it has done nothing yet
    about = JobFacts(
        *("a" * 64, "fedtemp", "example", "distributed", "add-remove", "gaussian", 1.0, 1e-6, 1),
        *(OWN_NOISE, "hub", time.time() + 3600),
    )
    with SiteRecords(state / RECORDS) as records:
        records.enrol(about, lambda: (b"secret", b"signed"))
    check_federation(state, state / FEDERATION)
    for changed in (new, None):
        refused(f"1 jobs at this site .* digest {first.digest}", check_federation, state, changed)
    with SiteRecords(state / RECORDS) as records:
        records.finish("a" * 64)
    check_federation(state, new)
    check_federation(state, None)


def _line(capfd: pytest.CaptureFixture[str]) -> str:
    return " ".join(capfd.readouterr().err.split())


def test_a_site_says_at_its_start_what_it_takes_part_in(tmp_path, monkeypatch, capfd):
    def no_fleet(*_: object) -> None:
        raise FedcalError("that far")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(site, "public_key", lambda _: "")
    monkeypatch.setattr(site, "trusted", lambda _: None)
    monkeypatch.setattr(site, "check_fleet", no_fleet)
    np.savez("rows.npz", logits=np.eye(2), labels=[0, 1])
    keys = [make_key(Path(f"{n}.pem")) for n in range(3)]
    sites = tuple(Member(f"site {n}", key.public) for n, key in enumerate(keys))
    roster = Roster("hearts", sites, Committee((0, 1, 2), 2), digest_of(["0", "1"])).signed(keys[0])
    Path("federation.toml").write_text(roster.to_toml())
    text = TEXT.replace("any", "protocol")
    Path("site.toml").write_text(f'{text}coordinator = "{keys[0].public.hex()}"\n')
    words = ["site", "--data", "rows.npz", "--fleet", "127.0.0.1:1", "--root-certificates", "ca"]
    words += ["--key", "k", "--policy", "site.toml", "--federation", "federation.toml"]

    def started(*more: str) -> tuple[str, str]:
        logger = logging.getLogger(LOGGER)
        assert _run([*words, *more]) == (1 if "--sign-key" in more else 2)
        for handler in logger.handlers[:]:
            logger.removeHandler(handler)
            handler.close()
        out, err = capfd.readouterr()
        return out, err

    out, err = started("--sign-key", "2.pem")
    assert "that far" in err
    assert f"site 2 of the federation hearts, digest {roster.digest}" in out
    assert "policy until 2030-01-01 (UTC): fedtemp, fednewton; unit example; trust local" in out
    assert "not verifiable here: what other sites send" in out
    _, err = started()
    assert "needs --federation, --sign-key and --policy together" in err
    # the same key with a second folder
    assert _run([*words, "--sign-key", "2.pem", "--state", "second"]) == 2
    assert "2.pem.records, the file of this site's key, is of records" in _line(capfd)
    assert "that far" in started("--sign-key", "2.pem")[1]
    assert _run([*["site", "restored", "--state"], "second"]) == 2
    assert _run([*["site", "restored", "--state"], "second", "--spent", "nothing"]) == 0
    capfd.readouterr()
    assert "that far" in started("--sign-key", "2.pem", "--state", "second")[1]
    assert _run([*words, "--sign-key", "2.pem"]) == 2
    # a key that is mounted read-only has its file elsewhere
    (tmp_path / "3.pem.records").mkdir()
    Path("2.pem").rename("3.pem")
    assert _run([*words, "--sign-key", "3.pem", "--state", "third"]) == 2
    assert "name a file that outlasts --state as --key-records" in _line(capfd)
    assert "that far" in started("--sign-key", "3.pem", "--state", "third", "--key-records", "r")[1]
