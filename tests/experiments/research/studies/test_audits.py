"""Audits as experiments: what attacks and real runs see, and what is claimed of them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedcal.experiments.research.benchmarks.audit import Attacked, attacks
from fedcal.experiments.research.canaries import canary_runs
from fedcal.experiments.research.studies.expected import shipped
from fedcal.experiments.research.studies.own import audits
from fedcal.experiments.research.studies.own.audits import CASES, HALF, RIGHT, Audited, fedsgd_run


def test_a_row_says_what_the_attack_found(monkeypatch):
    few = [Attacked("laplace", "central", "user"), Attacked("gaussian", "local", "example")]
    monkeypatch.setattr(audits, "attacks", lambda: few)
    done: list[tuple[int, int]] = []
    found = audits.noise.rows(lambda *moved: done.append(moved), trials=4000)
    assert [(r["mechanism"], r["trust"], r["unit"]) for r in found] == [
        ("laplace", "central", "user"),
        ("gaussian", "local", "example"),
    ]
    assert found[0]["of_it"] == found[0]["at_least"] / found[0]["claimed"] > 0.5
    assert done == [(1, 2), (2, 2)]


def test_what_ships_attacks_all_that_was_there():
    """Whole mechanisms and units: what is new comes in when the expected file is written again."""
    kept = [(r["mechanism"], r["trust"], r["unit"], r["note"]) for r in shipped("audit").rows]
    laws, units = {row[0] for row in kept}, {row[2] for row in kept}
    assert kept == [
        (c.mechanism, c.trust, c.unit, c.note)
        for c in attacks()
        if c.mechanism in laws and c.unit in units
    ]


def row(mechanism: str, share: float, **more: Any) -> dict[str, Any]:
    known = {"trust": "central", "unit": "user", "note": "", "refuted": False}
    return known | {"mechanism": mechanism, "of_it": share} | more


def test_one_refuted_row_is_named():
    good = [row("laplace", 0.9), row("gaussian", 0.4)]
    assert [holds for _, holds, _ in audits.noise.claims(good)] == [True, True]
    bad = [*good, row("laplace", 1.2, refuted=True, note="4 rounds")]
    (_, holds, said), _ = audits.noise.claims(bad)
    assert (holds, said) == (False, "refuted: laplace, central, user, 4 rounds")
    assert not list(audits.noise.claims([row("laplace", 0.7)]))[1][1]


def test_a_run_of_fedsgd_follows_the_law_of_its_sums():
    real = Audited(8.0, 20, 0.1, 400, RIGHT, real=True)
    for of in (real, replace(real, fault=HALF)):
        present, seen = fedsgd_run(of, seed=3)
        assert seen.shape == (20, 400)
        noise = 1.0 if of.fault == RIGHT else 0.5
        simulated, drawn = canary_runs(of.stage, 400, seed=3, noise=noise)
        for ours, theirs in ((seen[:, present], drawn[:, simulated]), (seen[:, ~present],) * 2):
            assert ours.std() == pytest.approx(theirs.std(), rel=0.05)
        assert seen[:, ~present].std() == pytest.approx(noise * of.stage.multiplier, rel=0.05)
        apart = seen[:, present].mean() - seen[:, ~present].mean()
        assert apart == pytest.approx(0.1, abs=6 * noise * of.stage.multiplier / np.sqrt(2000))


def test_rows_say_what_was_found(monkeypatch):
    few = [Audited(8.0, 20, 0.1, 400, fault) for fault in (RIGHT, HALF)]
    monkeypatch.setattr(audits, "CASES", few)
    done: list[tuple[int, int]] = []
    right, half = audits.training.rows(lambda *moved: done.append(moved), audits=5)
    assert (right["refuted"], half["refuted"], right["audits"]) == (0, 5, 5)
    assert right["at_least"] < 8.0 < half["at_least"]
    assert half["noise_at_most"] < 1.0 < right["noise_at_most"]
    assert done == [(1, 2), (2, 2)]


def test_what_ships_is_what_is_audited_and_one_wrong_verdict_fails_its_claim():
    rows: list[dict[str, Any]] = [dict(r) for r in shipped("training-audit").rows]
    assert [(r["audited"], r["epsilon"], r["fault"]) for r in rows] == [
        ("runs of FedSGD" if c.real else "law of the sums", c.epsilon, c.fault) for c in CASES
    ]
    assert all(holds for _, holds, *_ in audits.training.claims(rows))
    rows[0]["refuted"] = 11
    (_, holds, said), *others = audits.training.claims(rows)
    assert (holds, said) == (False, "1.0 % to 5.5 %")
    assert all(one[1] for one in others)
