"""After restoring a backup of a site's folder or machine, or replacing a lost folder: close all
open jobs, and book what was spent.
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
    """Close them."""
    carried = None if spent is None else carried_over(spent)
    with opened_records(state) as records:
        closed = records.close_all(carried)
    said = "" if spent is not None else ", and call this again with what they spent (--spent)"
    console().print(
        f"Jobs that were open and are closed now: {closed}. New jobs are answered again. Jobs that "
        "began after a backup was made, or with other records, are not known here: make sure with "
        f"whoever runs the server that they have ended{said}. Copies of these records answer "
        "nothing."
    )
