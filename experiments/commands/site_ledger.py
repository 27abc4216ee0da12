"""`fedcal site ledger` and `fedcal site restored`: a site's books, and backups of them."""

from __future__ import annotations

import datetime
import math
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from fedcal.clients.job_facts import Booked, Limits, spent_by_unit
from fedcal.clients.records import PUT_BACK, SiteRecords
from fedcal.clients.site_records import RECORDS
from fedcal.errors import InputError
from fedcal.experiments.commands.parameters import FILES, Json, other
from fedcal.experiments.files import to_json
from fedcal.experiments.show.tables import TextTable, print_table
from fedcal.experiments.terminal import console

State: TypeAlias = Annotated[Path, other(FILES, "The site's own folder.")]

_STATE = Path("fedcal-site")
_COLUMNS = (
    *("job", "first answer (UTC)", "asked by", "method", "unit", "epsilon", "delta"),
    *("noise", "rounds", "state"),
)


def site_ledger_command(*, state: State = _STATE, json: Json = False) -> None:
    """Show it."""
    with _records(state) as records:
        booked, limits, restored = records.booked(), records.limits, records.restored
    if json:
        print(to_json(_as_json(booked, limits, restored)), end="")
        return
    to = console()
    if not booked:
        to.print("Nothing was answered yet.")
    else:
        words = (0, 1, 2, 3, 4, 7, 9)
        print_table(to, TextTable(_COLUMNS, [_row(job) for job in booked], left=words), edge=True)
        print_table(to, _totals(booked, limits), edge=True)
        to.print(
            "Each job is charged whole at its first answer. 'own noise': the site added its share "
            "of the noise that the epsilon needs; 'claimed': the server says that it adds it."
        )
    if restored:
        to.print(f"These records {PUT_BACK}.")


def site_restored_command(*, state: State = _STATE) -> None:
    """Close them."""
    with _records(state) as records:
        closed = records.close_all()
    console().print(
        f"Jobs that were open and are closed now: {closed}. New jobs are answered again. Jobs that "
        "began after the backup was made are not known here: make sure with whoever runs the "
        "server that they have ended, and take what they spent off the totals of the policy."
    )


def _records(state: Path) -> SiteRecords:
    if not (state / RECORDS).exists():
        raise InputError(f"{state} has no records of a site: there is no {RECORDS} in it")
    return SiteRecords(state / RECORDS)


def _row(job: Booked) -> tuple[str, ...]:
    about = job.about
    return (
        job.job[:12],
        _time(job.when)[:16].replace("T", " "),
        about.server or "not said",
        about.method,
        about.unit,
        "exact" if about.exact else f"{about.epsilon:g}",
        "" if about.exact else f"{about.delta:g}",
        "none" if about.exact else about.verified,
        f"{len(job.answered)} of {about.rounds}",
        job.closed or "open",
    )


def _totals(booked: tuple[Booked, ...], limits: Limits | None) -> TextTable:
    columns = ("unit", "epsilon spent", "of", "delta spent", "of")
    caps = ("no limit",) * 2 if limits is None else (f"{limits.epsilon:g}", f"{limits.delta:g}")
    rows = [
        (unit, f"{epsilon:g}", caps[0], f"{delta:g}", caps[1])
        for unit, (epsilon, delta) in spent_by_unit(booked).items()
    ]
    return TextTable(columns, rows)


def _as_json(booked: tuple[Booked, ...], limits: Limits | None, restored: bool) -> dict[str, Any]:
    jobs = [
        {
            "job": job.job,
            "when": _time(job.when),
            **vars(job.about),
            "epsilon": None if job.about.exact else job.about.epsilon,
            "expires": None if math.isinf(job.about.expires) else _time(job.about.expires),
            "answered": list(job.answered),
            "closed": job.closed,
        }
        for job in booked
    ]
    totals = {
        unit: {"epsilon": epsilon, "delta": delta}
        for unit, (epsilon, delta) in spent_by_unit(booked).items()
    }
    caps = None if limits is None else vars(limits)
    return {"jobs": jobs, "totals": totals, "limits": caps, "restored": restored}


def _time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")
