"""Records of a site after a backup was put back: what they lack, and how to go on with them.

A person says what was spent since (`fedcal site restored`): nothing else at a site does that.
"""

import math
import os
import time
from pathlib import Path

from fedcal.clients.site import policy
from fedcal.clients.site.guard import count_file
from fedcal.clients.site.policy import CLAIMED, JobFacts
from fedcal.clients.site.store import NEW_ID, RECORDS, SiteRecords
from fedcal.core import checks
from fedcal.core.checks import InputError, damaged, needed
from fedcal.storage.atomic import must_exist
from fedcal.units import UNITS


class RestoredRecords(SiteRecords):
    """Records of a site, opened by the person who answers for them.

    Parameters
    ----------
    path, limits, count
        as of `SiteRecords`
    """

    def close_all(self, spent: str) -> int:
        """Close all jobs, and make this file the one of its key from now on.

        Jobs that began after a backup, or that other records have, are not known here. Whoever
        runs the server must have ended them: else one of their rounds could be answered again,
        with fresh noise. Copies of the file, and other records of the key, are refused from now on.

        Parameters
        ----------
        spent
            by such jobs, as `carried_over` reads it; it is booked now, whatever the limits

        Returns
        -------
        int
            how many jobs were open

        Raises
        ------
        InputError
            If it cannot be read, or the key's file or a receipt shows more: nothing is closed.
        """
        with self.transaction(check=False):
            if self.missing(spent):
                least = self.missing()
                raise InputError(
                    f"{spent!r:.80} was spent; the key's file or receipts show at least {least}"
                )
            were_open = self.unfinished
            self._close("TRUE", why="closed by the operator")
            for one in carried_over(spent):
                self._add(one)
            self.execute(NEW_ID)
            return were_open

    def missing(self, spent: str = "nothing") -> str:
        """Return the charges that are not in these records, nor in `spent`; "" = there are none.

        They are shown by the file of the site's key, and by receipts that earlier versions left
        beside results. All are written as `carried_over` reads them.
        """
        booked = self._jobs("booked IS NOT NULL")
        jobs = {one.job for one in booked}
        paths = [] if self._path is None else self._path.parent.glob("results/*/receipt")
        receipts = dict(path.read_text("ascii").split(" ", 1) for path in paths)
        lost = [one for job in receipts.keys() - jobs for one in carried_over(receipts[job])]
        known = (*booked, *carried_over(spent))
        shown = carried_over(self._left.spent), (*booked, *lost)
        more = [one for charges in shown if (one := policy.spent_in_all(charges, known))]
        return policy.in_text(max(more, key=lambda one: one[1])) if more else ""


def carried_over(text: str) -> tuple[JobFacts, ...]:
    """Return as charges, of now, what an operator says was spent and is not in the records.

    Parameters
    ----------
    text
        "nothing", or EPSILON,DELTA,UNIT as the lost ledger's account had it

    Raises
    ------
    InputError
        For anything else.
    """
    if text.strip() == "nothing":
        return ()
    with damaged(
        "--spent must be EPSILON,DELTA,UNIT, as 1.5,1e-6,example, or the word nothing; got "
        f"{text[:80]!r}"
    ):
        first, second, unit = text.split(",")
        epsilon = checks.interval("(0, inf)")("epsilon of --spent", checks.number_in(first))
        delta = checks.interval("[0, 1)")("delta of --spent", checks.number_in(second))
    kind = UNITS[checks.one_of("unit of --spent", unit.strip(), UNITS)]
    facts = (kind.name, "", kind.adjacency(False), "", epsilon, delta, 1, CLAIMED, "the operator")
    job, now = os.urandom(32).hex(), time.time()
    return (JobFacts(job, "carried over", *facts, math.inf, now, "carried over"),)


def restore(folder: Path, spent: str | None) -> int:
    """Close all jobs of the site in a folder, and book what an operator states was spent.

    Parameters
    ----------
    folder
        with its records
    spent
        EPSILON,DELTA,UNIT or "nothing"; None = nobody has said

    Returns
    -------
    int
        how many jobs were open

    Raises
    ------
    InputError
        As `RestoredRecords.close_all`; or nobody says anything, or there are no records.
    """
    must_exist(folder / RECORDS, "the folder has no records of a site")
    with RestoredRecords(folder / RECORDS, count=count_file(folder)) as records:
        least = records.missing()
        shown = f" (the key's file or receipts show at least {least})" * bool(least)
        why = "nothing is answered before somebody says what was spent since"
        how = f"--spent EPSILON,DELTA,UNIT{shown}, or --spent nothing"
        closed: int = records.close_all(needed("--spent", spent or None, f"{why}: {how}"))
        return closed
