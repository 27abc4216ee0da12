"""Audits as experiments: what attacks see, and what is claimed of them."""

from typing import Any

from experiments.studies.expected import shipped
from experiments.studies.own import audits
from experiments.studies.own.audits import Attacked, attacks


def test_a_row_says_what_the_attack_found(monkeypatch):
    monkeypatch.setattr(audits, "attacks", lambda: [Attacked("laplace", "central", "user")])
    (found,) = audits.noise.rows(trials=4000)
    assert (found["mechanism"], found["trust"], found["unit"]) == ("laplace", "central", "user")
    assert found["of_it"] == found["at_least"] / found["claimed"] > 0.5


def test_what_ships_attacks_all_that_was_there():
    """Whole mechanisms and units: what is new comes in when the expected file is written again."""
    kept = [(r["mechanism"], r["trust"], r["unit"], r["note"]) for r in shipped("audit").rows]
    now = [(c.mechanism, c.trust, c.unit, c.note) for c in attacks()]
    mechanisms, _, units, _ = map(set, zip(*kept, strict=True))
    assert kept == [row for row in now if row[0] in mechanisms and row[2] in units]


def test_one_refuted_row_is_named():
    def row(share: float, **more: Any) -> dict[str, Any]:
        known = {"trust": "central", "unit": "user", "note": "", "refuted": False}
        return known | {"mechanism": "laplace", "of_it": share} | more

    assert [holds for _, holds, _ in audits.noise.claims([row(0.9)])] == [True, True]
    (_, holds, output), _ = audits.noise.claims([row(1.2, refuted=True, note="4 rounds")])
    assert (holds, output) == (False, "refuted: laplace, central, user, 4 rounds")
    assert not list(audits.noise.claims([row(0.7)]))[1][1]
