"""Show what a site has spent, on which jobs of which server, and what is left."""

from __future__ import annotations

import datetime
import math
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from fedcal.clients.site.records.job_facts import Booked, Limits, spent_by_unit, spent_in_all
from fedcal.clients.site.records.records import SiteRecords
from fedcal.clients.site.records.site_records import RECORDS, records_in
from fedcal.core.errors import InputError
from fedcal.experiments.cli.parameters import FILES, Json, other
from fedcal.experiments.report.tables import TextTable, print_table
from fedcal.experiments.report.terminal import console
from fedcal.experiments.runs.files import to_json

State: TypeAlias = Annotated[Path, other(FILES, "Folder of the site.")]

STATE = Path("fedcal-site")
_COLUMNS = (
    *("job", "first answer (UTC)", "asked by", "method", "unit", "epsilon", "delta"),
    *("noise", "rounds", "state"),
)


EXAMPLES = ("fedcal site ledger", "fedcal site ledger --state state --json")


def command(*, state: State = STATE, json: Json = False) -> None:
    """Show it."""
    with opened_records(state) as records:
        booked, limits, refusal = records.booked(), records.limits, records.refusal
    if json:
        print(to_json(_as_json(booked, limits, refusal != "")), end="")
        return
    to = console()
    if not booked:
        to.print("Nothing was answered yet.")
    else:
        words = (0, 1, 2, 3, 4, 7, 9)
        print_table(to, TextTable(_COLUMNS, [_row(job) for job in booked], left=words), edge=True)
        print_table(to, _totals(booked, limits), edge=True)
        to.print(
            "Each job is charged in full at its first answer. 'own noise': the site added its "
            "share of the noise that the epsilon needs; 'claimed': the server says that it adds "
            "it."
        )
        if len(spent_by_unit(booked)) > 1:
            to.print(
                "The last line is what the totals of the policy are for: a job for a larger unit "
                "counts as twice its epsilon and 1 + e^epsilon times its delta there (once, where "
                "a user's rows may be any others)."
            )
    if refusal:
        to.print(f"These records {refusal}.")


def opened_records(state: Path) -> SiteRecords:
    """Open a site's records; InputError if its folder has none."""
    if not (state / RECORDS).exists():
        raise InputError(f"{state} has no records of a site: there is no {RECORDS} in it")
    return records_in(state)


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
        "none" if about.exact else about.verified if job.answered else "",
        f"{len(job.answered)} of {about.rounds}",
        job.closed or "open",
    )


def _totals(booked: tuple[Booked, ...], limits: Limits | None) -> TextTable:
    columns = ("unit", "epsilon spent", "of", "delta spent", "of")
    caps = ("no limit",) * 2 if limits is None else (f"{limits.epsilon:g}", f"{limits.delta:g}")
    by_unit = spent_by_unit(booked)
    rows = [
        (unit, f"{epsilon:g}", "", f"{delta:g}", "")
        for unit, (epsilon, delta) in by_unit.items()
        if len(by_unit) > 1
    ]
    if (all_of := spent_in_all([job.about for job in booked])) is not None:
        unit, epsilon, delta = all_of
        name = f"all, for each {unit}" if rows else unit
        rows.append((name, f"{epsilon:g}", caps[0], f"{delta:g}", caps[1]))
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
    all_of = spent_in_all([job.about for job in booked])
    return {
        "jobs": jobs,
        "totals": totals,
        "account": all_of and dict(zip(("unit", "epsilon", "delta"), all_of, strict=True)),
        "limits": None if limits is None else vars(limits),
        "restored": restored,
    }


def _time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")
