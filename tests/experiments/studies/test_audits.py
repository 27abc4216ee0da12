"""Audits as experiments: what attacks see, and what is claimed of them."""

from typing import Any

from experiments.studies.expected import shipped
from experiments.studies.own import audits
from experiments.studies.own.audits import Attacked, attacks


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
