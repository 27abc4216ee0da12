"""The state of a study: sites, server, releases and budget, as the server's machine knows them."""

import datetime
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcal.core.checks import FedcalError
from fedcal.privacy.ledger import Ledger
from fedcal.sites import kits
from fedcal.sites.release import releases_of
from fedcal.sites.sealed import JOIN, SEALED, Sealed
from fedcal.sites.server_run import control
from fedcal.sites.study_file import Study


def status(path: Path) -> dict[str, Any]:
    """Return where a study stands, as strict JSON.

    Parameters
    ----------
    path
        of the study's file, or of the sealed one

    Returns
    -------
    dict
        `sites`: name -> whether it is `connected` ("yes", "no" or "not known") and what it
        must do `next`; `releases`: name -> day; the `epsilon` of this year
    """
    sealed_path = path.with_suffix(SEALED)
    sealed = Sealed.read(sealed_path) if sealed_path.exists() else None
    study = sealed.study if sealed is not None and path == sealed_path else Study.read(path)
    home = kits.folder_of(path, study.study, "server")
    connected = _connected(home, sealed) if sealed is not None else {}
    made_kits = kits.folder_of(path, study.study, "kits").is_dir()
    sites = {}
    for site in study.sites:
        has_joined = sealed is not None or (path.parent / f"{site}{JOIN}").exists()
        word = connected.get(site, "not known")
        sites[site] = {"connected": word, "next": _next(made_kits, has_joined, sealed, word)}
    today = datetime.datetime.now(datetime.UTC).date()
    spent = _spent(home, study, today)
    return {
        "study": study.study,
        "sites": sites,
        "releases": releases_of(path.parent, study.study),
        "epsilon": {
            "a release": study.epsilon_release,
            "spent this year": spent,
            "left this year": max(study.epsilon - spent, 0.0),
        },
    }


def _connected(home: Path, sealed: Sealed) -> dict[str, str]:
    """Return site -> "yes" or "no"; {} where no server can be asked."""
    at, path = home / kits.CONTROL, home / kits.REGISTERED
    if not (at.exists() and path.exists()):
        return {}
    registered: Mapping[str, str] = json.loads(path.read_text("utf-8"))
    try:
        with control(at.read_text("ascii").strip(), home / "ca.crt") as superlink:
            nodes = superlink.nodes()
    except FedcalError:
        return {}
    there = {key for node, key in registered.items() if nodes.get(node) == "online"}
    return {site: "yes" if key in there else "no" for site, key in sealed.connections.items()}


def _next(has_kit: bool, has_joined: bool, sealed: Sealed | None, connected: str) -> str:
    """Return what has to be done for a site next, and by whom."""
    if not has_kit:
        return "fedcal study kit, here"
    if not has_joined:
        return "fedcal site join at the site, which sends back its .join file"
    if sealed is None:
        return "fedcal study seal, here, once all sites have joined"
    if connected == "yes":
        return "nothing: it waits for questions"
    if connected == "not known":
        return "fedcal study serve, here"
    return "fedcal site accept, unless it has, and fedcal site start at the site"


def _spent(home: Path, study: Study, today: datetime.date) -> float:
    """Return the epsilon of this year's releases."""
    if not study.since <= today <= study.until:
        return 0.0
    path = home / f"ledger-{study.year(today)}.sqlite"
    if not path.exists():
        return 0.0
    with Ledger(path) as book:
        return book.spent()[0]
