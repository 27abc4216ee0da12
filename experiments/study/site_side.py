"""The hospital's side of a study while it runs: the site itself, and what it shows of it."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedcal.clients.site.prepared import SITE, alone
from fedcal.clients.site.records.job_facts import spent_in_all
from fedcal.clients.site.records.site_records import RECORDS, records_in
from fedcal.clients.site.results import RESULTS
from fedcal.clients.site.site_log import LOG
from fedcal.core.errors import InputError
from fedcal.experiments.deploy.fleet import read_address
from fedcal.experiments.deploy.rows import SiteRows
from fedcal.experiments.deploy.site import run_site
from fedcal.experiments.study.joining import Kit, placed, rows_of, write_home
from fedcal.experiments.study.kits import AUTHORITY
from fedcal.experiments.study.sealed import Sealed

_REFUSALS = ("refused to", "cannot take part", "cannot be used")
_SHOWN = 3


def start(folder: Path, data: str | None, said: Callable[[str], None]) -> None:
    """Run a site that has accepted its study until a signal comes; as `run_site`.

    While it runs a file of rows that has changed is checked and used, without a command.

    Parameters
    ----------
    folder
        its kit
    data
        its rows from now on; None = those that it has
    said
        gets warnings about the rows, for the site's own terminal
    """
    kit = Kit.read(folder)
    sealed = _accepted(kit)
    rows = kit.data if data is None else placed(data)

    def read() -> SiteRows:
        found, warnings = rows_of(sealed.study, rows)
        for line in warnings:
            said(line)
        write_home(kit, found)
        kit.remember(rows)
        return found

    run_site(
        rows,
        fleet=read_address("server", sealed.study.server),
        root_certificates=folder / AUTHORITY,
        key=kit.connection,
        names=sealed.study.classes,
        state=kit.state,
        wait=math.inf,
        policy=folder / "site.toml",
        federation=folder / "federation.toml",
        sign_key=kit.signing,
        read=read,
        watched=Path(rows),
    )


def _accepted(kit: Kit) -> Sealed:
    if kit.accepted is None:
        raise InputError(
            f"{kit.site} has not accepted a study: fedcal site accept {kit.folder} "
            f"{kit.study.study}.sealed"
        )
    if not kit.is_enrolled(kit.accepted):
        raise InputError(
            f"{kit.site} has other keys than in the study that it accepted: send {kit.site}.join, "
            "and accept the study that is sealed anew"
        )
    return kit.accepted


def status(folder: Path) -> dict[str, Any]:
    """Show what a site has accepted, answered and spent, and what to do next; strict JSON.

    Raises InputError if the folder is no kit, or its records cannot be used.
    """
    kit = Kit.read(folder)
    sealed, study = kit.accepted, kit.study if kit.accepted is None else kit.accepted.study
    joined = (folder / "rows.json").exists()
    jobs, spent, refusal = [], 0.0, ""
    if (kit.state / RECORDS).exists():
        with records_in(kit.state) as records:
            booked, refusal = records.booked(), records.refusal
        spent = (spent_in_all(booked) or ("", 0.0, 0.0))[1]
        jobs = [
            {
                "when": _time(job.when),
                "epsilon": job.about.epsilon if math.isfinite(job.about.epsilon) else None,
                "asked by": job.about.server,
                "state": job.closed or "open",
            }
            for job in booked
        ]
    lines = _lines(kit.state / LOG)
    found: dict[str, Any] = {
        "study": study.study,
        "site": kit.site,
        "server": study.server,
        "digest": None if sealed is None else sealed.digest,
        "until": study.until.isoformat(),
        "rows": _rows(kit) if joined else None,
        "running": _runs(kit.state),
        "answered": jobs,
        "log": lines[-1] if lines else None,
        "refused": [line for line in lines if any(w in line for w in _REFUSALS)][-_SHOWN:],
        "epsilon": {
            "spent": spent,
            "left": max(study.epsilon_total - spent, 0.0),
            "release": study.epsilon_release,
        },
        "records": refusal,
        "release": _last_release(kit.state),
    }
    return found | {"next": _next(kit, found, joined)}


def _next(kit: Kit, found: dict[str, Any], joined: bool) -> str:
    """What the hospital does next."""
    epsilon, folder = found["epsilon"], kit.folder
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    if not joined:
        return f"fedcal site join {folder} ROWS, and send back {kit.site}.join"
    if kit.accepted is None or not kit.is_enrolled(kit.accepted):
        return f"wait for {kit.study.study}.sealed, then fedcal site accept {folder} FILE"
    if found["records"]:
        return f"fedcal site restored --state {kit.state}: nothing is answered until then"
    if found["until"] < today or epsilon["left"] < epsilon["release"] * (1 - 1e-9):
        return (
            "nothing: the study's time or budget is over. read-me.html says what is kept and how "
            "it is deleted"
        )
    if not found["running"]:
        return f"fedcal site start {folder}"
    if found["rows"]["changed since"]:
        return "nothing: the new rows are read once no run is under way"
    return f"before the next release put the new rows into {found['rows']['data']}"


def _last_release(state: Path) -> str | None:
    """The file of the last release that this site has answered in."""
    found = (state / RESULTS).glob("*/release.npz")
    return str(max(found, key=lambda path: path.stat().st_mtime, default="")) or None


def _rows(kit: Kit) -> dict[str, Any]:
    """Where the rows are, when they were read, and whether the file has changed since."""
    prepared, file = kit.state / SITE, Path(kit.data)
    read = prepared.stat().st_mtime if prepared.exists() else None
    changed = read is not None and file.is_file() and file.stat().st_mtime > read
    return {
        "data": kit.data,
        "read": None if read is None else _time(read),
        "changed since": changed,
        "there": file.exists() or ":" in kit.data,
    }


def _runs(state: Path) -> bool:
    if not (state / SITE).exists():
        return False
    try:
        with alone(state):
            return False
    except InputError:
        return True


def _lines(log: Path) -> list[str]:
    return log.read_text("utf-8", "replace").splitlines() if log.exists() else []


def _time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")
