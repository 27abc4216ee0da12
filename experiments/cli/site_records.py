"""The commands of a site's records, its key and its federation."""

import contextlib
import datetime
import math
import sys
from pathlib import Path
from typing import Any

from fedcal.clients.site.records.job_facts import Booked, BudgetCaps, spent_by_unit, spent_in_all
from fedcal.clients.site.records.records import RECORDS, SiteRecords, records_in
from fedcal.core.checks import needed
from fedcal.core.errors import InputError
from fedcal.core.pages import Table
from fedcal.experiments.cli.parameters import Json
from fedcal.experiments.report.tables import print_table
from fedcal.experiments.report.terminal import console
from fedcal.experiments.runs.files import to_json
from fedcal.secure_aggregation.keys import make_key, read_key
from fedcal.secure_aggregation.roster import Roster, in_groups
from fedcal.storage.atomic import must_exist, whole_file

STATE = Path("fedcal-site")

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
        booked, limits, refusal = records.booked(), records.limits, records.refusal
    if json:
        print(to_json(_as_json(booked, limits, refusal != "")), end="")
        return
    to = console()
    if not booked:
        to.print("Nothing was answered yet.")
    else:
        words = (0, 1, 2, 3, 4, 7, 9)
        print_table(to, Table("", _COLUMNS, [_row(job) for job in booked], left=words))
        print_table(to, _totals(booked, limits))
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
    must_exist(state / RECORDS, "the folder has no records of a site")
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


def _totals(booked: tuple[Booked, ...], limits: BudgetCaps | None) -> Table:
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
    return Table("", columns, rows, left=(0,))


def _as_json(
    booked: tuple[Booked, ...], limits: BudgetCaps | None, restored: bool
) -> dict[str, Any]:
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
    console().print(
        f"Open jobs that were closed: {closed}. New jobs are answered again. Jobs that began "
        "after the backup, or with other records, are unknown here: make sure with the server's "
        "operator that they have ended. Copies of these records answer nothing."
    )


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
    to = console()
    to.print(f"{file} holds this site's private signing key: it never leaves this machine.")
    to.print("Its public key, for the coordinator of the federation:")
    to.print(key.public.hex())


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
    committee = roster.committee
    to = console()
    to.print(f"{roster.name}: {len(roster.sites)} sites. Compare this digest with the other sites:")
    to.print(f"\n{in_groups(roster.digest)}\n")
    classes = roster.class_digest or "not said"
    signed = roster.coordinator.hex() if roster.coordinator else "nobody"
    facts = (
        ("digest, as in site.toml", roster.digest),
        ("digest of the classes", classes),
        ("signed by", signed),
        ("members of the committee", f"{len(committee.members)}"),
        ("members that open a sum", f"{committee.threshold} (threshold)"),
        ("members who may be absent", f"{committee.dropouts}"),
        ("members who may work with the server", f"{committee.colluding}"),
    )
    for name, value in facts:
        to.print(f"{name}: {value}")
    members = set(committee.members)
    rows = [
        (str(number), site.name, "yes" if number in members else "", site.key.hex())
        for number, site in enumerate(roster.sites[:_SHOWN])
    ]
    to.print()
    print_table(to, Table("", ("site", "name", "member", "public key"), rows, left=(1, 2, 3)))
    if more := len(roster.sites) - len(rows):
        to.print(f"and {more:,} more")


def _sign(file: Path, roster: Roster, key: Path) -> Roster:
    """Add the signature at the end of the file; whatever else stands there stays."""
    if roster.coordinator is not None:
        raise InputError(
            f"{file} is signed by {roster.coordinator.hex()}: take its [signature] out first"
        )
    signed = roster.signed(read_key(key))
    text = file.read_text("utf-8").rstrip() + "\n" + signed.signature_toml()
    with whole_file(file) as out:
        out.write(text.encode())
    return Roster.read(file)
