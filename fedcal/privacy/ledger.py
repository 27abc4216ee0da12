"""The privacy ledger: what a population of users has been charged, in one SQLite file.

One file stands for one population of users. A run *reserves* its whole budget before its first
release and *charges* each release before it is made; both are on disk when the call returns, so a
crash can only overstate what was spent. What would exceed the file's cap is refused.

Across runs epsilons add up and deltas add up (basic composition, Dwork et al. 2006), and each sum
has its cap. That stays valid when a run's parameters were chosen after seeing the results of
earlier ones. Within a run the plan has already composed its releases, tightly. The sum is a
statement about one unit of privacy, so a file takes runs of one unit alone. Two files for two units
do not share a cap: a row pays for runs for its user, too
(`fedcal.clients.site.policy.account`, by which sites count, says how much).
"""

import math
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Annotated

from fedcal.core import checks
from fedcal.core.options import Positive, set_checked, within
from fedcal.privacy.privacy import check_caps
from fedcal.storage.atomic import must_exist, path_of
from fedcal.storage.database import Database

__all__ = ["CAP_DELTA", "Entry", "Ledger"]

_APPLICATION = 0x6663_616C  # "fcal", in SQLite's application_id
_SCHEMA = 2

_TABLES = (
    "CREATE TABLE cap (epsilon REAL NOT NULL, delta REAL NOT NULL)",
    "CREATE TABLE runs (run TEXT PRIMARY KEY, epsilon REAL NOT NULL, delta REAL NOT NULL,"
    " releases INTEGER NOT NULL, mechanism TEXT NOT NULL, unit TEXT NOT NULL,"
    " adjacency TEXT NOT NULL, event TEXT NOT NULL)",
    "CREATE TABLE charges (run TEXT NOT NULL REFERENCES runs, number INTEGER NOT NULL,"
    " PRIMARY KEY (run, number))",
)


CAP_DELTA = 1e-3
"""Default cap on the sum of the deltas of all runs of a new file."""


@dataclass(frozen=True)
class Entry:
    """One run's reservation.

    ``epsilon`` and ``delta`` cover all of its ``releases``; ``charged`` lists the numbers
    (1 to ``releases``) of those that were made or were about to be. ``mechanism``, ``unit``,
    ``adjacency`` and ``event`` say in words what the two numbers mean.
    """

    run: str
    epsilon: Positive
    delta: Annotated[float, checks.interval("[0, 1)")]
    releases: Annotated[int, within(1, 2**31 - 1)]
    mechanism: str
    unit: str
    adjacency: str
    event: str
    charged: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        set_checked(self)


class Ledger(AbstractContextManager["Ledger"]):
    """A budget that several runs, and several processes, draw from.

    Parameters
    ----------
    path
        The file, made if there is none; None keeps the ledger in memory, for a run of its own.
    cap
        Largest sum of epsilons, finite and above 0. It is written into a new file and needed for
        one; an existing file keeps its own, and a different one is refused.
    cap_delta
        Largest sum of deltas, in (0, 1); `CAP_DELTA` in a new file if it is left out. As ``cap``,
        an existing file keeps its own.

    Attributes
    ----------
    cap, cap_delta
        Largest sums of epsilons and of deltas that this ledger grants.

    Raises
    ------
    InputError
        For a cap that is missing, not allowed or not the file's; a path that is a directory,
        cannot be written, or holds anything but a ledger of this version.

    Notes
    -----
    Close it, or use it as a context manager; one that is dropped closes itself. It may be used
    from several threads. The file must lie on a disk whose locks work; many network file systems'
    do not.
    """

    def __init__(
        self, path: str | Path | None, cap: float | None = None, cap_delta: float | None = None
    ) -> None:
        if cap is not None:
            cap = checks.positive("a ledger's cap", cap)
        if cap_delta is not None:
            checks.fraction("a ledger's cap on delta", cap_delta)
        path = None if path is None else path_of(path)
        if path is not None and cap is None:
            must_exist(path, "a new ledger needs a cap")
        self._db = Database(path, "ledger")
        self._name = self._db.name
        try:
            with self._db.transaction():
                self.cap, self.cap_delta = self._open(cap, cap_delta)
        except BaseException:
            self.close()
            raise

    def _open(self, cap: float | None, cap_delta: float | None) -> tuple[float, float]:
        """Make the tables or check them; return the caps. Within a transaction."""
        if (version := self._db.make(_APPLICATION, _SCHEMA, _TABLES)) == 0:
            cap = checks.needed("a cap", cap, f"{self._name} is empty")
            caps = (cap, CAP_DELTA if cap_delta is None else float(cap_delta))
            self._db.execute("INSERT INTO cap VALUES (?, ?)", caps)
            return caps
        checks.integer(f"the version of {self._name}", version, _SCHEMA, _SCHEMA)
        with checks.damaged(f"{self._name} is damaged: it has no valid cap"):
            (stored,) = self._db.rows("SELECT epsilon, delta FROM cap")
        self._entries()  # refuses damaged rows
        for name, required, present in zip(
            ("cap", "cap on delta"), (cap, cap_delta), stored, strict=True
        ):
            checks.positive(f"the {name} of {self._name}, which is damaged,", present)
            checks.same(
                f"{name} of {self._name}", present if required is None else required, present
            )
        # a read-only file begins and commits without complaint: find out now, not in round 1
        self._db.execute("UPDATE cap SET epsilon = epsilon")
        return stored[0], stored[1]

    def reserve(self, entry: Entry) -> None:
        """Set a run's whole budget aside, before its first release; on disk when this returns.

        Parameters
        ----------
        entry
            A name that this ledger has not seen; epsilon finite and above 0, delta in [0, 1), at
            least 1 release, and the unit of the file's other runs.

        Raises
        ------
        BudgetExceeded
            If the epsilons of all reservations, or their deltas, would exceed their cap (by more
            than 1e-9 of it).
        InputError
            For a value outside of these ranges, a known run, another unit, or a file that cannot
            be written.
        """
        run, budget = entry.run, (entry.epsilon, entry.delta)
        with self._db.transaction():
            entries = self._entries()
            checks.different(
                f"reservations of a run in {self._name}", [*(e.run for e in entries), run]
            )
            for one in entries:
                what = f"unit of {self._name}, by run {one.run!r} (others need a separate ledger),"
                checks.same(what, entry.unit, one.unit)
            spent = [(one.epsilon, one.delta) for one in entries]
            check_caps(self._name, run, budget, spent, (self.cap, self.cap_delta))
            row = (run, *budget, *astuple(entry)[3:-1])
            self._db.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)

    def charge(self, run: str, number: int) -> None:
        """Note that release ``number`` of ``run`` is about to be made; on disk when this returns.

        A number is charged once. A run that resumes after a crash cannot know whether a charged
        release was seen, so it must replay what it wrote down or go on with the next number; the
        same release with fresh noise would be a second one.

        Raises
        ------
        BudgetExceeded
            If the run has no reservation, the reservation has no release ``number``, or that one
            was charged before. Nothing may be released then.
        InputError
            If ``number`` is not a whole number of at least 1, or the file cannot be written.
        """
        number = checks.integer("the number of a release", number, 1)
        with self._db.transaction():
            # only this run's rows: a training charges thousands of releases
            rows = self._db.rows("SELECT releases FROM runs WHERE run = ?", (run,))
            if not rows:
                raise checks.BudgetExceeded(f"{self._name} has no reservation for run {run!r}")
            ((releases,),) = rows
            if number > releases:
                raise checks.BudgetExceeded(
                    f"{self._name}: run {run!r} reserved {releases} releases, "
                    f"release {number} is not covered"
                )
            known = "SELECT 1 FROM charges WHERE run = ? AND number = ?"
            if self._db.rows(known, (run, number)):
                raise checks.BudgetExceeded(
                    f"{self._name}: release {number} of run {run!r} was charged before"
                )
            self._db.execute("INSERT INTO charges VALUES (?, ?)", (run, number))

    def cancel(self, run: str) -> bool:
        """Give a reservation back if none of its releases was charged; True if it was given back.

        For a run that failed before its first charge. After a charge the *whole* reservation
        stays: the noise was fitted to all releases jointly, each alone has no epsilon of its own
        to subtract, and the failed round's sum may have been seen. Unknown runs are left alone.
        """
        with self._db.transaction():
            gone = self._db.execute(
                "DELETE FROM runs WHERE run = ? AND run NOT IN (SELECT run FROM charges)", (run,)
            )
            return gone > 0

    def spent(self) -> tuple[float, float]:
        """Sum of the epsilons and sum of the deltas of all reservations, used up or not."""
        entries = self.entries()
        return (
            math.fsum(entry.epsilon for entry in entries),
            math.fsum(entry.delta for entry in entries),
        )

    def entries(self) -> tuple[Entry, ...]:
        """Return all reservations, oldest first."""
        with self._db.transaction():
            return self._entries()

    def _entries(self) -> tuple[Entry, ...]:
        """Read all reservations, within a transaction; InputError if the file was tampered with."""
        charged: dict[str, list[int]] = {}
        for run, number in self._db.rows("SELECT run, number FROM charges ORDER BY number"):
            charged.setdefault(run, []).append(number)
        rows = self._db.rows(
            "SELECT run, epsilon, delta, releases, mechanism, unit, adjacency, event"
            " FROM runs ORDER BY rowid"
        )
        with checks.located(f"{self._name} is damaged"):
            entries = tuple(
                replace(Entry(*row), charged=tuple(charged.pop(row[0], ()))) for row in rows
            )
            checks.same("list of runs that are charged without a reservation", sorted(charged), [])
        return entries

    def close(self) -> None:
        """Close the file; an in-memory ledger is gone. Closing twice is no error."""
        self._db.close()

    def __exit__(self, *error: object) -> None:
        self.close()
