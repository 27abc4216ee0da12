"""Is a claimed epsilon refuted? Attacks on every mechanism, trust model and unit.

One row for each mechanism, trust model and unit that go together, at epsilon = 1: a lower bound on
the epsilon that it really spends, found by `experiments.audit`. All bounds hold
together but for a probability of `ERROR`. A row above its claim is a bug.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from experiments.audit import Finding, audit
from experiments.studies.rows import counted, span
from experiments.studies.spec import Record, Rows, RowsClaim, Study, study_file
from fedcal.mechanisms import MECHANISMS, PRIVATE, Laplace, Mechanism
from fedcal.privacy.making import make_plan
from fedcal.privacy.noise_plan import Plan
from fedcal.privacy.privacy import Federation
from fedcal.strategies.server.outcome import Progress
from fedcal.trust import NOISY
from fedcal.units import UNITS, Bound, Rule

EPSILON, DELTA = 1.0, 1e-5
ERROR = 1e-3
TRIALS = 400_000
CLIENTS = 10
CANDIDATES = 40
_SLOWER = 4  # where each trial is a call of its own: so many times fewer of them


@dataclass(frozen=True)
class Attacked:
    """The target of an attack: one row of the table.

    Attributes
    ----------
    row_sums
        whether a client's contribution is a sum over its rows
    numbers
        in a contribution, or candidates
    """

    mechanism: str
    trust: str
    unit: str
    rounds: int = 1
    sampling_rate: float = 1.0
    row_sums: bool = True
    numbers: int = 1
    noise_source: str = "seeded"

    @property
    def note(self) -> str:
        """Special features of this target, as text."""
        notes = {
            f"{self.rounds} rounds": self.rounds > 1,
            f"sampling rate {self.sampling_rate:g}": self.sampling_rate < 1,
            "no sum over rows": not self.row_sums,
            f"{self.numbers} numbers": self.numbers > 1 and self.kind.answers == "sum",
            "OS noise": self.noise_source == "system",
        }
        return ", ".join(note for note, holds in notes.items() if holds)

    def plan(self) -> Plan:
        """Return the plan that is attacked."""
        rule: Rule = "joint" if self.kind.answers == "sum" else "per_value"
        return make_plan(
            Federation(
                clients=CLIENTS,
                classes=2,
                epsilon=EPSILON,
                delta=DELTA,
                trust=self.trust,
                unit=self.unit,
                mechanism=self.mechanism,
                sampling_rate=self.sampling_rate,
                noise_source=self.noise_source,
            ),
            rounds=self.rounds,
            bound=Bound((self.numbers,), (2.5,), rule),
            prefers=(self.kind,),
            row_sums=self.row_sums,
        )

    @property
    def kind(self) -> type[Mechanism]:
        """The mechanism under attack."""
        return MECHANISMS[self.mechanism]


_NUMBERS = {"sum": 1, "index": CANDIDATES, "onehot": 4}
"""Release that a mechanism makes of answers -> numbers in one."""


def attacks() -> list[Attacked]:
    """All that go together, and then those that the study file lists."""
    found = [
        Attacked(kind.name, trust.name, unit.name, numbers=_NUMBERS[kind.answers])
        for kind, trust, unit in product(PRIVATE.values(), NOISY.values(), UNITS.values())
        if trust.accepts(kind) and kind.part in (None, unit.per)
    ]
    beside = study_file("own")["audit"]["options"]["beside"]
    return found + [Attacked(**one) for one in beside]


def attacked(attack: Attacked, trials: int, error: float, seed: int = 0) -> Finding:
    """Run an audit; `error` is that of all attacks together.

    There are fewer trials if each is a call of its own.
    """
    if attack.kind.answers != "sum":
        trials //= _SLOWER
    return audit(attack.plan(), trials, error=error / len(attacks()), seed=seed)


def name_of(row: Record) -> str:
    """Return the words that identify a row."""
    return ", ".join(row[k] for k in ("mechanism", "trust", "unit", "note") if row[k])


def _attacked(progress: Progress | None = None, *, trials: int = TRIALS) -> Rows:
    """One row for each attack, of so many runs in each of two worlds.

    Returns
    -------
    list of dict
        `mechanism`, `trust`, `unit`, `neighbours`, `note`, `claimed` epsilon, `at_least` (the
        bound that the attack proves), `of_it` (its share), `trials` (of this attack), `refuted`
    """
    found: Rows = []
    for attack in counted(attacks(), progress):
        finding = attacked(attack, trials, ERROR)
        row = {k: getattr(attack, k) for k in ("mechanism", "trust", "unit")}
        row |= {"neighbours": attack.plan().adjacency, "note": attack.note}
        row |= {"claimed": finding.claimed, "at_least": finding.lower_bound}
        row |= {"of_it": finding.lower_bound / finding.claimed, "trials": finding.trials}
        found.append(row | {"refuted": finding.refuted})
    return found


def _attacked_claims(found: Rows) -> Iterator[RowsClaim]:
    """No attack succeeds, and those on pure mechanisms are strong enough to say something."""
    bad = [name_of(r) for r in found if r["refuted"]]
    laplace = [r["of_it"] for r in found if r["mechanism"] == Laplace.name]
    shown = f"refuted: {'; '.join(bad)}" if bad else f"{len(found)} attacks"
    yield "No claimed epsilon is refuted", not bad, shown
    yield (
        "Attacks on Laplace noise prove at least three quarters of the claim",
        min(laplace) >= 0.75,
        span(laplace, ".0%").replace("%", " %"),
    )


noise = Study(_attacked, _attacked_claims)
