"""Attack every mechanism: `python -m fedcal.experiments.benchmarks.audit`.

One row for each mechanism, trust model and unit that go together, at epsilon = 1: a lower bound on
the epsilon that it really spends, found by `fedcal.privacy.audit`. All bounds hold together but for
a probability of `--error`. A row above its claim is a bug; the command then exits with 1.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from rich.console import Console
from rich.table import Table

from fedcal.bounding import Bound
from fedcal.mechanisms import (
    MECHANISMS,
    PRIVATE,
    DiscreteLaplace,
    Exponential,
    Gaussian,
    Laplace,
    Mechanism,
    Unary,
)
from fedcal.privacy.audit import Finding, audit
from fedcal.privacy.plan import Federation, Plan, make_plan
from fedcal.trust import NOISY, Central, Distributed, Local
from fedcal.units import UNITS, Example, User

HEADINGS = (
    *("mechanism", "trust", "unit", "neighbours", "", "claimed"),
    *("at least", "of it", "trials", "seconds"),
)
EPSILON, DELTA = 1.0, 1e-5
ERROR = 1e-3
TRIALS = 400_000
CLIENTS = 10
CANDIDATES = 40
_SLOWER = 4  # where each trial is a call of its own: so many times fewer of them


@dataclass(frozen=True)
class Cell:
    """What is attacked: one row of the table.

    Attributes
    ----------
    row_sums : whether a client's contribution is a sum over its rows
    numbers : in a contribution, or candidates
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
        """What is special about it."""
        notes = []
        if self.rounds > 1:
            notes.append(f"{self.rounds} rounds")
        if self.sampling_rate < 1:
            notes.append(f"sampling rate {self.sampling_rate:g}")
        if not self.row_sums:
            notes.append("no sum over rows")
        if self.numbers > 1 and self.law.answers == "sum":
            notes.append(f"{self.numbers} numbers")
        if self.noise_source == "system":
            notes.append("OS noise")
        return ", ".join(notes)

    def plan(self) -> Plan:
        """The plan that is attacked."""
        own = self.law.answers != "sum"
        federation = Federation(
            clients=CLIENTS,
            classes=2,
            epsilon=EPSILON,
            delta=DELTA,
            trust=self.trust,
            unit=self.unit,
            mechanism=self.mechanism,
            sampling_rate=self.sampling_rate,
            noise_source=self.noise_source,
        )
        return make_plan(
            federation,
            rounds=self.rounds,
            bound=Bound((self.numbers,), (2.5,), "per_value" if own else "joint"),
            prefers=(self.law,),
            row_sums=self.row_sums,
        )

    def trials(self, trials: int) -> int:
        """So many trials, or fewer where each is a call of its own."""
        return trials if self.law.answers == "sum" else trials // _SLOWER

    @property
    def law(self) -> type[Mechanism]:
        """The mechanism."""
        return MECHANISMS[self.mechanism]

    @property
    def pure(self) -> bool:
        """Whether it has no delta by itself, so that an attack can come close to the claim."""
        return self.law.pure


_NUMBERS = {"sum": 1, "index": CANDIDATES, "onehot": 4}
"""What a mechanism makes of answers -> numbers in one."""


def cells() -> list[Cell]:
    """All that go together, then some with more rounds, sampling and other neighbours."""
    found = [
        Cell(law.name, trust.name, unit.name, numbers=_NUMBERS[law.answers])
        for law, trust, unit in product(PRIVATE.values(), NOISY.values(), UNITS.values())
        if trust.takes(law) and law.part in (None, unit.per)
    ]
    central, shared, local = Central.name, Distributed.name, Local.name
    user, row = User.name, Example.name
    return [
        *found,
        Cell(Laplace.name, central, user, sampling_rate=0.3),
        Cell(Gaussian.name, central, user, sampling_rate=0.3),
        Cell(DiscreteLaplace.name, shared, user, sampling_rate=0.3),
        Cell(Exponential.name, central, user, sampling_rate=0.3, numbers=CANDIDATES),
        Cell(Laplace.name, central, user, rounds=4, numbers=2),
        Cell(Gaussian.name, central, user, rounds=4, numbers=2),
        Cell(Laplace.name, central, row, row_sums=False),
        Cell(Laplace.name, local, row, row_sums=False),
        Cell(Exponential.name, central, row, row_sums=False, numbers=CANDIDATES),
        Cell(Laplace.name, central, user, noise_source="system"),
        Cell(Gaussian.name, central, user, noise_source="system"),
        Cell(DiscreteLaplace.name, shared, user, noise_source="system"),
        Cell(Unary.name, local, user, numbers=4, noise_source="system"),
    ]


def attacked(cell: Cell, trials: int, error: float, seed: int = 0) -> Finding:
    """What an audit of a cell finds; `error` is that of all cells together."""
    return audit(cell.plan(), cell.trials(trials), error=error / len(cells()), seed=seed)


def lines(cell: Cell, finding: Finding, seconds: float) -> list[str]:
    """The row as people read it."""
    return [
        *(cell.mechanism, cell.trust, cell.unit, cell.plan().adjacency, cell.note),
        f"{finding.claimed:g}",
        f"{finding.lower_bound:.3f}",
        f"{finding.lower_bound / finding.claimed:.0%}".replace("%", " %"),
        str(finding.trials),
        f"{seconds:.1f}",
    ]


def as_table(rows: Sequence[Sequence[str]]) -> Table:
    """The table for the terminal."""
    table = Table(pad_edge=False, padding=(0, 1))
    right = HEADINGS.index("claimed")
    for i, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="left" if i < right else "right")
    for row in rows:
        table.add_row(*row)
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Attack all cells and print what was found; 1 if a claim was refuted."""
    parser = argparse.ArgumentParser(
        prog="python -m fedcal.experiments.benchmarks.audit",
        description=(__doc__ or "").split("\n")[0],
    )
    parser.add_argument("--trials", type=int, default=TRIALS, help="runs in each of two worlds")
    parser.add_argument("--error", type=float, default=ERROR, help="of all rows together")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    rows, refuted = [], []
    for cell in cells():
        start = time.perf_counter()
        finding = attacked(cell, options.trials, options.error, options.seed)
        rows.append(lines(cell, finding, time.perf_counter() - start))
        if finding.refuted:
            refuted.append(cell)
    Console(width=120).print(as_table(rows))
    for cell in refuted:
        print(f"REFUTED: {cell}")
    return 1 if refuted else 0


if __name__ == "__main__":
    raise SystemExit(main())
