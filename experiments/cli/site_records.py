"""The commands of a site's records, its key and its federation."""

import contextlib
import datetime
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedcal.clients.site.account import BudgetCaps, spent_in_all
from fedcal.clients.site.policy import Policy
from fedcal.clients.site.prepared import POLICY
from fedcal.clients.site.store import RECORDS, SiteRecords, records_in
from fedcal.core.checks import needed
from fedcal.core.errors import InputError
from fedcal.core.pages import Table
from fedcal.experiments.cli.parameters import Json
from fedcal.experiments.report import terminal
from fedcal.experiments.report.page import said
from fedcal.secure_aggregation.keys import make_key, read_key
from fedcal.secure_aggregation.roster import Roster, in_groups
from fedcal.storage.atomic import must_exist, write_whole

STATE = Path("fedcal-site")

_BUDGET = ("epsilon", "delta")
_COLUMNS = (
    *("job", "first answer (UTC)", "asked by", "method", "unit", "epsilon", "delta"),
    *("noise", "rounds", "state"),
)


def ledger(*, state: Path = STATE, json: Json = False) -> None:
    """Show what a site has spent, on which jobs of which server, and what is left.

    Files and output
    ----------------
    state
        Folder of the site.

    Examples
    --------
    fedcal site ledger
    fedcal site ledger --state state --json
    """
    with opened_records(state) as records:
        record, refusal = _record(records, state / POLICY), records.refusal
    told = _shown(record) if record["jobs"] else ["Nothing was answered yet."]
    terminal.show([*told, f"These records {refusal}."] if refusal else told, record, json=json)


def opened_records(state: Path) -> SiteRecords:
    """Open a site's records; InputError if its folder has none."""
    must_exist(state / RECORDS, "the folder has no records of a site")
    return records_in(state)


def _record(records: SiteRecords, policy: Path) -> dict[str, Any]:
    booked = records.booked()
    limits = BudgetCaps.of(Policy.read(policy)).total if policy.exists() else None
    jobs = [
        {
            "when": _time(job.booked or 0.0),
            **{name: value for name, value in vars(job).items() if name != "booked"},
            "epsilon": None if job.exact else job.epsilon,
            "expires": None if math.isinf(job.expires) else _time(job.expires),
            "answered": list(job.answered),
            "closed": job.closed or "",
        }
        for job in booked
    ]
    units = dict.fromkeys(job.unit for job in booked if not job.exact)
    spent = (spent_in_all([job for job in booked if job.unit == unit]) for unit in units)
    all_of = spent_in_all(booked)
    return {
        "jobs": jobs,
        "totals": {one[0]: dict(zip(_BUDGET, one[1:], strict=True)) for one in spent if one},
        "account": all_of and dict(zip(("unit", *_BUDGET), all_of, strict=True)),
        "limits": limits and dict(zip(_BUDGET, limits, strict=True)),
        "restored": records.refusal != "",
    }


def _time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")


def _shown(record: dict[str, Any]) -> list[Any]:
    rows = []
    for job in record["jobs"]:
        exact = job["epsilon"] is None
        cost = ("exact", "") if exact else (f"{job['epsilon']:g}", f"{job['delta']:g}")
        noise = "none" if exact else job["verified"] * bool(job["answered"])
        what = (job["server"] or "not said", job["method"], job["unit"], *cost, noise)
        answered = f"{len(job['answered'])} of {job['rounds']}", job["closed"] or "open"
        rows.append((job["job"][:12], job["when"][:16].replace("T", " "), *what, *answered))
    totals, all_of = record["totals"], record["account"]
    lines = [(unit, *_sums(sums, ("", ""))) for unit, sums in totals.items() if len(totals) > 1]
    if all_of is not None:
        caps = [f"{cap:g}" for cap in (record["limits"] or {}).values()] or ["no limit"] * 2
        name = f"all, for each {all_of['unit']}" if lines else all_of["unit"]
        lines.append((name, *_sums(all_of, caps)))
    columns = ("unit", "epsilon spent", "of", "delta spent", "of")
    return [
        Table("", _COLUMNS, rows, left=(0, 1, 2, 3, 4, 7, 9)),
        Table("", columns, lines, left=(0,)),
        *said("commands", "ledger", units=len(totals)),
    ]


def _sums(spent: dict[str, Any], caps: Sequence[str]) -> tuple[str, ...]:
    return f"{spent['epsilon']:g}", caps[0], f"{spent['delta']:g}", caps[1]


def restored(*, state: Path = STATE, spent: str | None = None) -> None:
    """Close all open jobs of a site, and book what was spent.

    Run it after restoring a backup of a site's folder or machine, or replacing a lost folder.

    Files and output
    ----------------
    state
        Folder of the site.
    spent
        EPSILON,DELTA,UNIT: budget spent that is missing in these records and is booked now; or the
        word nothing. Asked for where it is left out.

    Examples
    --------
    fedcal site restored --state state --spent nothing
    fedcal site restored --state state --spent 1.5,1e-6,example
    """
    with opened_records(state) as records:
        least = records.missing()
        shown = f" (the receipts at hand show at least {least})" * bool(least)
        if spent is None and sys.stdin.isatty():
            print(f"Budget spent that is not in these records{shown}, as EPSILON,DELTA,UNIT;")
            with contextlib.suppress(EOFError):
                spent = input("or the word nothing: ").strip()
        why = "nothing is answered before somebody says what was spent since"
        how = f"--spent EPSILON,DELTA,UNIT{shown}, or --spent nothing"
        spent = needed("--spent", spent or None, f"{why}: {how}")
        closed = records.close_all(spent)
    terminal.show(said("commands", "restored", closed=closed))


def key(file: Path) -> None:
    """Make this site's signing key, or show the public half of an existing one.

    Arguments
    ---------
    file : FILE
        The private key, for this user alone (0600).

    Examples
    --------
    fedcal site key signing.pem
    """
    key = read_key(file) if file.exists() else make_key(file)
    terminal.show(said("commands", "key", file=file, key=key))


_SHOWN = 100

"""Sites in the table; a federation may have 100,000."""


def federation(file: Path, sign: Path | None = None) -> None:
    """Check a federation.toml and show its digest, or sign it as its coordinator.

    Sites compare the digest by telephone.

    Arguments
    ---------
    file : FILE
        The federation.toml.

    Files and output
    ----------------
    sign
        The coordinator's private key: add its signature to FILE.

    Examples
    --------
    fedcal site federation federation.toml
    fedcal site federation federation.toml --sign coordinator.pem
    """
    roster = Roster.read(file)
    if sign is not None:
        roster = _sign(file, roster, sign)
    members = set(roster.committee.members)
    rows = [
        (str(number), site.name, "yes" if number in members else "", site.key.hex())
        for number, site in enumerate(roster.sites[:_SHOWN])
    ]
    sites = Table("", ("site", "name", "member", "public key"), rows, left=(1, 2, 3))
    more = len(roster.sites) - len(rows)
    told = said("commands", "federation", roster=roster, digest=in_groups(roster.digest))
    terminal.show([*told, "", sites, *([f"and {more:,} more"] if more else [])])


def _sign(file: Path, roster: Roster, key: Path) -> Roster:
    """Add the signature at the end of the file; whatever else stands there stays."""
    if roster.coordinator is not None:
        raise InputError(
            f"{file} is signed by {roster.coordinator.hex()}: take its [signature] out first"
        )
    signed = roster.signed(read_key(key))
    text = file.read_text("utf-8").rstrip() + "\n" + signed.signature_toml()
    write_whole(file, text)
    return Roster.read(file)
