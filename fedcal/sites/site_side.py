"""The hospital's side of a study while it runs: the site itself, and what it shows of it."""

import datetime
import logging
import math
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from fedcal.clients.site import guard, results, site_log
from fedcal.clients.site.policy import account
from fedcal.clients.site.preparing import prepare
from fedcal.clients.site.store import PUT_BACK, RECORDS, records_in
from fedcal.core.checks import InputError, needed
from fedcal.core.flower_internals_site import check_flower
from fedcal.results.page import block_lines
from fedcal.results.terminal import Stopped, console
from fedcal.run.engines.supernode import supernode
from fedcal.run.engines.tls import check_fleet, read_address, trusted
from fedcal.sites import joining, kits, site
from fedcal.storage.atomic import write_file

log = logging.getLogger(site_log.LOGGER)


def start(folder: Path, data: str | None, say: Callable[[str], None] | None) -> None:
    """Run a site that has accepted its study until a signal comes.

    It waits for a server that is not up yet. Its rows are those of the file when it starts.

    Parameters
    ----------
    folder
        of the kit
    data
        the site's rows from now on (None = the present ones); they are read as those of `join`
    say
        gets warnings about them, for the site's own terminal; None = nobody looks on

    Raises
    ------
    InputError
        The study, the rows, the records or this Flower cannot be used.
    FedcalError
        What listens there is no SuperLink to be trusted, or Flower ends again and again.
    Stopped
        Ctrl-C. SIGTERM just ends it.
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

    check_flower()
    state, fleet = folder / joining.STATE, read_address("server", sealed.study.server)
    authority, roster = kit.own / kits.AUTHORITY, sealed.roster
    write_file(authority, sealed.authority)  # that of the kit may be another one by now
    rules = sealed.study.policy(roster.digest)
    context = trusted(authority)
    site.check_federation(state, roster.digest)
    try:
        site_rows, warnings = joining.rows_of(sealed.study, rows, kit.site, reading)
    except InputError:
        if say is not None or not Path(rows).is_file():
            raise
        raise InputError(
            f"{rows} cannot be used. Start the site on a terminal to see why"
        ) from None
    for line in [*warnings, *kit.use(rows, site_rows, reading)]:
        if say is not None:
            say(line)
    if sys.stdout.isatty():  # what goes into a file or a container's log tells of no rows
        console().print(site_rows.described())
    prepare(
        state,
        site_rows.shards,
        names=site_rows.names,
        policy=rules,
        terms=sealed.asked,
        roster=roster,
        sign_key=kit.own / joining.SIGNING,
        server=str(fleet),
    )
    del site_rows
    with records_in(state) as records:
        if (why := records.refusal) not in ("", PUT_BACK):
            raise InputError(f"{state / RECORDS} {why}")
    site_log.log_to(state / site_log.LOG)
    try:
        with site.until_terminated():
            echo = site.Echo(state / site_log.LOG)
            log.info("a site of the federation %s, digest %s", roster.name, roster.digest)
            if why:
                log.warning("the records of this site %s", why)
            log.info("looking for %s, until it listens", fleet)
            echo.show()
            check_fleet(fleet, context, math.inf)
            key = {"root_certificates": authority, "key": kit.own / joining.CONNECTION}
            node_of = partial(supernode, state, fleet=str(fleet), **key)
            site.keep_running(state, str(fleet), node_of, echo)
    except site.Terminated:
        log.info("stopped")
    except KeyboardInterrupt:
        log.info("stopped")
        raise Stopped("the site is stopped; the same command starts it again") from None


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
    content: dict[str, Any] = {
        "study": study.study,
        "until": study.until.isoformat(),
        "site": kit.site,
        "running": (state / guard.SITE).exists() and _runs(state),
        "asked by": study.server,
        "digest": None if kit.accepted is None else kit.accepted.digest,
        "rows": kit.rows[0] if kit.has_joined else None,
        "epsilon": {
            "spent this year": this_year,
            "left this year": left_this_year,
            "spent in all": spent,
            "left in all": left,
            "a release": study.epsilon_release,
        },
        "records": refusal or None,
        "result": str(last_result(folder) or "") or None,
        "log": lines[-1] if lines else None,
        "answered": jobs,
    }
    enough = study.epsilon_release * (1 - 1e-9)
    over = content["until"] < _time(time.time())[:10] or left < enough
    wait = caps.in_words(year) if left_this_year < enough else ""
    (step,) = block_lines(
        "study", "next", kit=kit, content=content, state=state, over=over, wait=wait
    )
    return content | {"next": step}


def last_result(folder: Path) -> Path | None:
    """Return the file of the last result that came to a site, or None."""
    files = (folder / joining.STATE / results.RESULTS).glob("*/*.npz")
    return max(files, key=lambda path: path.stat().st_mtime, default=None)


def recalibrated(folder: Path, release: Path | None) -> dict[str, Any]:
    """Return what `at_home.recalibrate` takes, as a site's kit knows it.

    InputError if the site has not joined, or no release (None = the last one) has come to it.
    """
    kit = joining.Kit.read(folder)
    study = kit.study if kit.accepted is None else kit.accepted.study
    needed("fedcal site join", kit.has_joined or None, f"{folder} has no rows without it")
    data, reading = kit.rows
    return {
        "release": needed("RELEASE", release or last_result(folder), "none has come to this site"),
        "data": data,
        "site": kit.site,
        "class_names": study.classes,
        "reading": reading,
        "most": study.missing,
        "plural": study.subjects,
    }


def _runs(state: Path) -> bool:
    try:
        with guard.alone(state):
            return False
    except InputError:
        return True


def _time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="minutes")
