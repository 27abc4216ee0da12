"""Close all open jobs of a site, and book what was spent.

Run it after restoring a backup of a site's folder or machine, or replacing a lost folder.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Annotated

from fedcal.core.errors import InputError
from fedcal.experiments.cli.parameters import FILES, other
from fedcal.experiments.cli.site.site_ledger import STATE, State, opened_records
from fedcal.experiments.report.terminal import console

EXAMPLES = (
    "fedcal site restored --state state --spent nothing",
    "fedcal site restored --state state --spent 1.5,1e-6,example",
)


def command(
    *,
    state: State = STATE,
    spent: Annotated[
        str | None,
        other(
            FILES,
            "EPSILON,DELTA,UNIT: budget spent that is missing in these records and is booked now; "
            "or the word nothing. Asked for where it is left out.",
            "--spent",
        ),
    ] = None,
) -> None:
    """Close the open jobs."""
    with opened_records(state) as records:
        least = records.missing()
        shown = f" (the receipts at hand show at least {least})" * bool(least)
        if spent is None and sys.stdin.isatty():
            print(f"Budget spent that is not in these records{shown}, as EPSILON,DELTA,UNIT;")
            with contextlib.suppress(EOFError):
                spent = input("or the word nothing: ").strip()
        if not spent:
            raise InputError(
                "nothing is answered before somebody says what was spent since: --spent "
                f"EPSILON,DELTA,UNIT{shown}, or --spent nothing"
            )
        closed = records.close_all(spent)
    console().print(
        f"Open jobs that were closed: {closed}. New jobs are answered again. Jobs that began "
        "after the backup, or with other records, are unknown here: make sure with the server's "
        "operator that they have ended. Copies of these records answer nothing."
    )
