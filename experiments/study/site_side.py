"""The hospital's side of a study while it runs: the site itself, and what it shows of it."""

import datetime
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedcal.clients.site import prepared, results, site_log
from fedcal.clients.site.account import account
from fedcal.clients.site.store import RECORDS, records_in
from fedcal.core.checks import InputError, needed
from fedcal.experiments.deploy import site
from fedcal.experiments.deploy.rows import SiteRows
from fedcal.experiments.report.page import said
from fedcal.experiments.runs.engines.tls import read_address
from fedcal.experiments.runs.files import write_folder
from fedcal.experiments.study import joining, kept, kits

_REFUSALS = ("refused to", "cannot take part", "cannot be used")


def start(folder: Path, data: str | None, say: Callable[[str], None] | None) -> None:
    """Run a site that has accepted its study until a signal comes; as `run_site`.

    While it runs a file of rows that has changed is checked and used, without a command. `data`
    are its rows from now on (None = the present ones); they are read as those of `join`. `say` gets
    warnings about them, for the site's own terminal; None = there is none, and nothing is said.
    """
    kit = joining.Kit.read(folder)
    if (sealed := kit.accepted) is None or not kit.is_enrolled(sealed):
        raise InputError(
            f"{kit.site} has accepted nothing, or has other keys since: fedcal site accept {folder}"
            f" {kit.study.study}.sealed, once the study is sealed with them"
        )
    sealed.study.must_go_on()
    before, reading = kit.rows
    rows = before if data is None else data
    rows = os.path.abspath(rows) if Path(rows).exists() else rows

    def read() -> SiteRows:
        try:
            site_rows, warnings = joining.rows_of(sealed.study, rows, kit.site, reading)
        except InputError:
            if say is not None or not Path(rows).is_file():
                raise
            raise InputError(
                f"{rows} cannot be used. Start the site on a terminal to see why"
            ) from None
        warnings += kit.use(rows, site_rows, reading)
        if say is not None:
            for line in warnings:
                say(line)
        return site_rows

    write_folder(folder, lambda draft: joining.write_rules(draft, sealed))
    site.run_site(
        read,
        fleet=read_address("server", sealed.study.server),
        root_certificates=folder / kits.AUTHORITY,
        key=kit.own / joining.CONNECTION,
        state=folder / joining.STATE,
        policy=folder / joining.POLICY,
        terms=sealed.asked,
        federation=folder / joining.FEDERATION,
        sign_key=kit.own / joining.SIGNING,
        watched=Path(rows),
    )


def status(folder: Path) -> dict[str, Any]:
    """Show what a site has accepted, answered and spent, and what to do next; strict JSON.

    Raises InputError if the folder is no kit, or its records cannot be used.
    """
    kit, state = joining.Kit.read(folder), folder / joining.STATE
    study = kit.study if kit.accepted is None else kit.accepted.study
    jobs, costs, refusal = [], [], ""
    caps = study.policy()
    year = caps.year(time.time())
    if (state / RECORDS).exists():
        with records_in(state) as records:
            booked, refusal = records.booked(), records.refusal
        for job, (epsilon, _) in zip(booked, account(booked)[1], strict=True):
            costs.append((caps.year(job.booked or 0.0), epsilon))
            asked = {"answered": _time(job.booked or 0.0), "asked by": job.server}
            of = {"epsilon": None if job.exact else job.epsilon, "state": job.closed or "open"}
            jobs.append(asked | of)
    this_year = math.fsum(epsilon for its, epsilon in costs if its == year)
    spent = math.fsum(epsilon for _, epsilon in costs)
    left = max(study.epsilon_total - spent, 0.0)
    left_this_year = min(max(study.epsilon - this_year, 0.0), left)
    log = state / site_log.LOG
    lines = log.read_text("utf-8", "replace").splitlines() if log.exists() else []
    has_joined, is_read = kit.has_joined, (state / prepared.SITE).exists()
    judged = kept.judge(state) if is_read else []
    last = last_release(folder)
    content: dict[str, Any] = {
        "study": study.study,
        "until": study.until.isoformat(),
        "site": kit.site,
        "running": is_read and _runs(state),
        "asked by": study.server,
        "digest": None if kit.accepted is None else kit.accepted.digest,
        "rows": kit.rows[0] if has_joined else None,
        "read": _time((state / prepared.SITE).stat().st_mtime) if is_read else None,
        "epsilon": {
            "spent this year": this_year,
            "left this year": left_this_year,
            "spent in all": spent,
            "left in all": left,
            "a release": study.epsilon_release,
        },
        "records": refusal or None,
        "release": None if last is None else str(last),
        "log": lines[-1] if lines else None,
        "judged": judged,
        "refused": [line for line in lines if any(w in line for w in _REFUSALS)][-3:],
        "answered": jobs,
    }
    enough = study.epsilon_release * (1 - 1e-9)
    over = content["until"] < _time(time.time())[:10] or left < enough
    wait = caps.in_words(year) if left_this_year < enough else ""
    (step,) = said("study", "next", kit=kit, told=content, state=state, over=over, wait=wait)
    return content | {"next": step}


def last_release(folder: Path) -> Path | None:
    """Return the file of the last release that came to a site, or None."""
    releases = (folder / joining.STATE / results.RESULTS).glob("*/release.npz")
    return max(releases, key=lambda path: path.stat().st_mtime, default=None)


def recalibrated(folder: Path, release: Path | None) -> dict[str, Any]:
    """Return what `at_home.recalibrate` takes, as a site's kit knows it.

    InputError if the site has not joined, or no release (None = the last one) has come to it.
    """
    kit = joining.Kit.read(folder)
    study = kit.study if kit.accepted is None else kit.accepted.study
    needed("fedcal site join", kit.has_joined or None, f"{folder} has no rows without it")
    data, reading = kit.rows
    return {
        "release": needed("RELEASE", release or last_release(folder), "none has come to this site"),
        "data": data,
        "site": kit.site,
        "class_names": study.classes,
        "reading": reading,
        "most": study.missing,
        "who": study.subjects,
    }


def _runs(state: Path) -> bool:
    try:
        with prepared.alone(state):
            return False
    except InputError:
        return True


def _time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="minutes")
