"""Close all open jobs of a site, and book what was spent.

Run it after restoring a backup of a site's folder or machine, or replacing a lost folder.
"""

from __future__ import annotations

from typing import Annotated

from fedcal.clients.site.records.job_facts import carried_over
from fedcal.experiments.cli.parameters import FILES, other
from fedcal.experiments.cli.site.site_ledger import STATE, State, opened_records
from fedcal.experiments.report.terminal import console

EXAMPLES = (
    "fedcal site restored --state state",
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
            "or the word nothing.",
            "--spent",
        ),
    ] = None,
) -> None:
    """Close the open jobs."""
    carried = None if spent is None else carried_over(spent)
    with opened_records(state) as records:
        closed = records.close_all(carried)
    note = (
        ""
        if spent is not None
        else ", and run this command again with their spent budget (--spent)"
    )
    console().print(
        f"Open jobs that were closed: {closed}. New jobs are answered again. Jobs that began "
        "after the backup, or with other records, are unknown here: make sure with the server's "
        f"operator that they have ended{note}. Copies of these records answer nothing."
    )
