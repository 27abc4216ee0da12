"""Audits of training as an experiment: real runs see what the law says, and what is claimed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedcal.experiments.studies import training_audit
from fedcal.experiments.studies.expected import shipped
from fedcal.experiments.studies.training_audit import CASES, HALF, RIGHT, Audited, fedsgd_run
from fedcal.privacy.canaries import canary_runs

REAL = Audited(8.0, 20, 0.1, 400, RIGHT, real=True)


def test_a_run_of_fedsgd_follows_the_law_of_its_sums() -> None:
    for of in (REAL, replace(REAL, fault=HALF)):
        present, seen = fedsgd_run(of, seed=3)
        assert seen.shape == (20, 400)
        noise = 1.0 if of.fault == RIGHT else 0.5
        simulated, drawn = canary_runs(of.stage, 400, seed=3, noise=noise)
        for ours, theirs in ((seen[:, present], drawn[:, simulated]), (seen[:, ~present],) * 2):
            assert ours.std() == pytest.approx(theirs.std(), rel=0.05)
        assert seen[:, ~present].std() == pytest.approx(noise * of.stage.multiplier, rel=0.05)
        apart = seen[:, present].mean() - seen[:, ~present].mean()
        assert apart == pytest.approx(0.1, abs=6 * noise * of.stage.multiplier / np.sqrt(2000))


def test_real_runs_pass_as_promised_and_not_with_half_of_the_noise() -> None:
    assert not any(found.refuted for found in REAL.audits(3))
    assert all(found.refuted for found in replace(REAL, fault=HALF).audits(3))


def test_rows_say_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    few = [Audited(8.0, 20, 0.1, 400, fault) for fault in (RIGHT, HALF)]
    monkeypatch.setattr(training_audit, "CASES", few)
    done: list[tuple[int, int]] = []
    right, half = training_audit.rows(lambda *moved: done.append(moved), audits=5)
    assert (right["refuted"], half["refuted"], right["audits"]) == (0, 5, 5)
    assert right["at_least"] < 8.0 < half["at_least"]
    assert half["noise_at_most"] < 1.0 < right["noise_at_most"]
    assert done == [(1, 2), (2, 2)]


def test_what_ships_is_what_is_audited_and_one_wrong_verdict_fails_its_claim() -> None:
    rows: list[dict[str, Any]] = [dict(r) for r in shipped("training-audit").rows]
    assert [(r["audited"], r["epsilon"], r["fault"]) for r in rows] == [
        ("runs of FedSGD" if c.real else "law of the sums", c.epsilon, c.fault) for c in CASES
    ]
    assert all(holds for _, holds, *_ in training_audit.claims(rows))
    rows[0]["refuted"] = 11
    (_, holds, said), *others = training_audit.claims(rows)
    assert (holds, said) == (False, "1.0 % to 5.5 %")
    assert all(one[1] for one in others)
