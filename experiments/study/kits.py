"""What a coordinator makes: keys, the server's certificates, a kit for each site, the sealed study.

A kit holds nothing secret: it may go by mail. Its certificate of the authority is compared with
that of the sealed study, and so is in no need of trust by itself.
"""

from __future__ import annotations

import datetime
import json
import shutil
import socket
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from fedcal import __version__
from fedcal.core.errors import InputError
from fedcal.experiments.deploy.certificates import is_certified, make_certificates
from fedcal.experiments.deploy.fleet import read_address
from fedcal.experiments.report.page import render
from fedcal.experiments.runs.files import write_folder
from fedcal.experiments.study.sealed import SEALED, Join, Sealed, write_text
from fedcal.experiments.study.study_file import Study, named
from fedcal.experiments.study.study_server import folder_of
from fedcal.secure_aggregation.keys import make_key, read_key
from fedcal.secure_aggregation.roster import in_groups

KIT, STUDY, AUTHORITY, UNIT = "kit.json", "study.toml", "ca.crt", "fedcal-site.service"
SCHEMA = 1

ONE_MACHINE = (
    "whoever runs the server chose the committee: keys, kits and server are on one machine. Good "
    "for trying it out; for more, let somebody else than the server's people make kits and seal"
)

_KEY = "coordinator.pem"
_SERVED = (AUTHORITY, "server.crt", "server.key", "executor.key")
_LOOPBACK = ("localhost", "127.0.0.1")
_LONGEST, _SPARE = 3650, 60  # days of a certificate, and after the study's end
_EXPLAINED = {
    "federation": "the digest that you have compared: other sites, keys or terms are refused",
    "class-digest": "of the names of the classes, in their order",
    "expires": "the last day, in UTC, on which anything is answered",
    "methods": "what is counted: predictions and outcomes, with noise",
    "unit": "who is protected, and by whom: each site adds its share of the noise",
    "epsilon-per-run": "of a release, and of all of them",
    "answers": "fewest sites in a release, and how many may work with the server",
    "settings": "the one question that is answered; each of these must be asked for as it is here",
}


def make_kits(path: Path) -> list[str]:
    """Make what sites and server need, beside a study's file; keys and certificates are kept.

    Returns
    -------
    list of str
        lines that say what goes to whom

    Raises
    ------
    InputError
        The file is not a study's, or nothing can be written beside it.
    """
    study = Study.read(path)
    own, server, kits = (folder_of(path, study.study, p) for p in ("coordinator", "server", "kits"))
    host = read_address("server", study.server).host
    is_ours = is_here(host)
    try:
        for folder in (own, server):
            folder.mkdir(mode=0o700, exist_ok=True)
        if not (own / _KEY).exists():
            make_key(own / _KEY)
        if not is_certified(own / "server.crt", host, study.until):
            for name in ("server.crt", "server.key"):
                (own / name).unlink(missing_ok=True)
            names = [host, *(name for name in _LOOPBACK if name != host)]
            today = datetime.datetime.now(datetime.UTC).date()
            days = min(max((study.until - today).days, 0) + _SPARE, _LONGEST)
            make_certificates(own, names=names, sites=[], days=days)
        for name in _SERVED:
            shutil.copy(own / name, server / name)  # with its mode
    except OSError as e:
        raise InputError(f"cannot write {e.filename or path.parent}: {e.strerror}") from None
    for site in study.sites:
        files = kit_files(study, site, one_machine=is_ours)
        files[AUTHORITY] = (own / AUTHORITY).read_text("ascii")
        write_folder(kits / site, partial(write_files, files=files))
    lines = [
        f"{kits}: one folder for each site, {named([*study.sites])}. Nothing in them is secret: "
        "send each to its site, which calls `fedcal site join` and sends back a .join file.",
        f"{server}: carry it to the server at {study.server}; its .key files are for it alone.",
        f"{own}: stays here and is shown to nobody; with it goes the right to seal.",
        f"Next: fedcal study seal {path} *.join",
    ]
    return [*lines, f"note: {ONE_MACHINE}"] if is_ours else lines


def is_here(host: str) -> bool:
    """Return whether a host's name or address is one of this machine's."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(address)
            return True
        except OSError:
            continue
    return False


def kit_files(study: Study, site: str, *, one_machine: bool) -> dict[str, str]:
    """Return name -> text of the files of a site's kit, but for the authority's certificate."""
    known = {"study": study, "site": site, "version": __version__}
    known["versions"] = {"fedcal": __version__}
    title, home = f"{study.study}: {site}", f"/srv/fedcal/{site}"
    note = ONE_MACHINE if one_machine else ""
    return {
        STUDY: study.to_toml(),
        KIT: json.dumps({"schema": SCHEMA, "site": site, "one_machine": one_machine}) + "\n",
        "policy.toml": policy_text(study, ""),
        "start.sh": '#!/bin/sh\nexec fedcal site start "$(dirname "$0")" "$@"\n',
        UNIT: unit_text(site, "fedcal", home, home, f"/bin/sh {home}/start.sh"),
        "compose.yml": render("kit-compose.yml.j2", **known),
        "read-me.html": render(
            "kit.html.j2",
            title=title,
            verdict=f"{site} is asked to take part in the study {study.study}.",
            note=note,
            **known,
        ),
    }


def policy_text(study: Study, federation: str) -> str:
    """Return a site's `site.toml` with comments; without a digest it is for reading alone."""
    tables = study.policy(federation)
    if not federation:
        del tables["federation"]
    lines = ["# What this site takes part in. Whatever is not in here is refused."]
    for name, value in tables.items():
        if name in _EXPLAINED:
            lines.append(f"# {_EXPLAINED[name]}")
        if isinstance(value, dict):  # settings: a line each
            ((method, pinned),) = value.items()
            lines.append(f"[{name}.{method}]")
            lines += [f"{k} = {json.dumps(v, ensure_ascii=False)}" for k, v in pinned.items()]
        else:
            is_day = isinstance(value, datetime.date)
            lines.append(f"{name} = {value if is_day else json.dumps(value, ensure_ascii=False)}")
    return "\n".join(lines) + "\n"


def unit_text(site: str, user: str, folder: str, beside: str, command: str) -> str:
    """Return the systemd unit of a site.

    Parameters
    ----------
    site, user
        its name, and who runs it
    folder, beside
        its kit, and where it is started, from which module:function is found; absolute paths
    command
        as a unit has it: the program by an absolute path
    """
    known = {"user": user, "folder": folder, "beside": beside, "command": command}
    return render("kit.service.j2", site=site, **known)


def seal(path: Path, joins: Sequence[Path]) -> list[str]:
    """Enrol the sites of a study and write `STUDY.sealed` beside its file; lines that say it.

    Raises InputError as `Join.read` and `Sealed.of`, or if there are no kits yet.
    """
    study = Study.read(path)
    own, out = folder_of(path, study.study, "coordinator"), path.with_suffix(SEALED)
    if not (own / _KEY).exists():
        raise InputError(f"{own / _KEY} is not there: fedcal study kit {path} makes it")
    signer, authority = read_key(own / _KEY), (own / AUTHORITY).read_text("ascii")
    sealed = Sealed.of(study, [Join.read(join) for join in joins], authority, signer)
    is_same = out.exists() and Sealed.read(out).digest == sealed.digest
    write_text(out, sealed.to_text(signer))
    accept = "the digest is as before: who has accepted it need not do so again" if is_same else ""
    host = read_address("server", study.server).host
    return [
        f"{out}: {len(study.sites)} sites, until {study.until}. Its digest:",
        "",
        in_groups(sealed.digest),
        "",
        "Read it to each site by telephone: equal digests mean equal terms, sites and keys.",
        f"Next: each site calls `fedcal site accept` with {out.name}; the server calls "
        f"`fedcal study serve {out.name}` beside the folder {study.study}-server.",
        *([f"note: {accept}"] if accept else []),
        *([f"note: {ONE_MACHINE}"] if is_here(host) else []),
    ]


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write texts by name; scripts can be run."""
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
        if name.endswith(".sh"):
            (folder / name).chmod(0o755)
