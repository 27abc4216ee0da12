"""Coordinator and server of a study: keys, certificates, kits for sites, the sealed study.

A kit holds nothing secret: it may go by mail. Its certificate of the authority is compared with
that of the sealed study, and so is in no need of trust by itself.

The server, SuperLink and executor in one process group, needs no signing key. Whoever runs it
learns what `fedcal.secure_aggregation` says that a server learns, as long as somebody else chose
the sites' keys: so it stands elsewhere than the coordinator.
"""

import contextlib
import datetime
import json
import math
import os
import shutil
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedcal import __version__
from fedcal.core import checks, flower_internals_site
from fedcal.core.checks import FedcalError, InputError, system_errors
from fedcal.evaluation.sites.verdicts import SEEN, detectable, least_points
from fedcal.metrics.bootstrap import ERROR
from fedcal.results import page
from fedcal.results.files import write_folder
from fedcal.run.engines import superlink as flower
from fedcal.run.engines import tls
from fedcal.run.engines.processes import ProcessTree
from fedcal.secure_aggregation import keys
from fedcal.secure_aggregation.roster import in_words
from fedcal.sites.sealed import SEALED, Join, Sealed
from fedcal.sites.server_run import Control, control
from fedcal.sites.site import Terminated, until_terminated
from fedcal.sites.study_file import Study, named
from fedcal.storage.atomic import locked, must_exist, write_file

KIT, STUDY, AUTHORITY, UNIT = "kit.json", "study.toml", "ca.crt", "fedcal-site.service"

ONE_MACHINE = (
    "the operator of the server chose the committee: keys, kits and server are on one machine. "
    "Good for a trial; otherwise let a person apart from the server's operators make kits and seal"
)

KEY = "coordinator.pem"
_SERVED = (AUTHORITY, "server.crt", "server.key", "executor.key")
_LONGEST, _SPARE = 3650, 60  # days of a certificate, and after the study's end


def folder_of(path: Path, study: str, part: str) -> Path:
    """Return the folder of a study beside its file: of `server`, `coordinator`, `kits`."""
    return path.parent / f"{study}-{part}"


def make_kits(path: Path) -> list[str]:
    """Make what sites and server need, beside a study's file; keys and certificates are kept.

    Returns lines that say what goes to whom. Raises InputError if the file is not a study's, or
    nothing can be written beside it.
    """
    from fedcal.sites.joining import Kit

    study = Study.read(path)
    own, server, kits = (folder_of(path, study.study, p) for p in ("coordinator", "server", "kits"))
    host = tls.read_address("server", study.server).host
    is_ours = is_here(host)
    with system_errors(f"cannot write {path.parent}"):
        for folder in (own, server):
            folder.mkdir(mode=0o700, exist_ok=True)
        if not (own / KEY).exists():
            keys.make_key(own / KEY)
        if not tls.is_certified(own / "server.crt", host, study.until):
            for name in ("server.crt", "server.key"):
                (own / name).unlink(missing_ok=True)
            left = (study.until - datetime.datetime.now(datetime.UTC).date()).days
            days = min(max(left, 0) + _SPARE, _LONGEST)
            names = list(dict.fromkeys((host, "localhost", "127.0.0.1")))
            tls.make_certificates(own, names, days)
        for name in _SERVED:
            shutil.copy(own / name, server / name)  # with its mode
    for site in study.sites:
        files = kit_files(study, site)
        files[AUTHORITY] = (own / AUTHORITY).read_text("ascii")
        write_folder(kits / site, partial(write_files, files=files))
    joined = named([site for site in study.sites if Kit(kits / site, site, study).is_used])
    facts: dict[str, Any] = {"study": study, "path": path, "own": own, "server": server}
    facts |= {"sites": named([*study.sites]), "joined": joined, "note": ONE_MACHINE * is_ours}
    return page.block_lines("study", "kits", kits=kits, **facts)


def is_here(host: str) -> bool:
    """Return whether a host's name or address is one of this machine's."""
    try:
        addresses = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    for family, kind, protocol, _, address in addresses:
        with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as probe:
            probe.bind(address)
            return True
    return False


def kit_files(study: Study, site: str) -> dict[str, str]:
    """Return name -> text of the files of a site's kit, but for the authority's certificate."""
    about = page.Page(
        f"{study.study}: {site}",
        f"{site} is invited to the study {study.study}.",
        (),
        versions={"fedcal": __version__},
    )
    return {
        STUDY: study.to_toml(),
        KIT: json.dumps({"schema": 1, "site": site}) + "\n",
        "read-me.html": about.html(template="kit.html.j2", study=study, site=site),
    }


def service_files(site: str, **paths: str | Path) -> dict[str, str]:
    """Return name -> text of the files by which a site that has joined runs as a service.

    `paths` are `python`, `folder` (its kit), `own` (of its keys) and `beside`, its working folder.
    """
    # a service of root's could do more than a site
    paths |= {"account": str(os.getuid() or "fedcal")}
    return {
        UNIT: page.render("kit.service.j2", site=site, **paths),
        "compose.yml": page.render("kit-compose.yml.j2", site=site, version=__version__, **paths),
    }


def seal(path: Path, joins: Sequence[Path]) -> list[str]:
    """Enrol the sites of a study and write `STUDY.sealed` beside its file; lines that say it.

    Raises InputError as `Join.read` and `Sealed.of`, or if there are no kits yet.
    """
    study = Study.read(path)
    study.must_go_on()
    own, out = folder_of(path, study.study, "coordinator"), path.with_suffix(SEALED)
    must_exist(own / KEY, f"fedcal study kit {path} makes it")
    signer, authority = keys.read_key(own / KEY), (own / AUTHORITY).read_text("ascii")
    is_ours = is_here(tls.read_address("server", study.server).host)
    sealed = Sealed.of(study, [Join.read(join) for join in joins], authority, signer)
    sealed, notes = replace(sealed, one_machine=is_ours), [ONE_MACHINE] * is_ours
    before = [Sealed.read(last) for last in (out, own / out.name) if last.exists()]
    if last := max(before, key=lambda one: one.revision, default=None):
        unchanged = last.digest == sealed.digest
        sealed = replace(sealed, revision=last.revision + (not unchanged))
        notes += ["the digest is unchanged: who has accepted it need not do so again"] * unchanged
    for place in (own / out.name, out):
        write_file(place, sealed.to_text(signer))
    facts: dict[str, Any] = {"study": study, "sealed": sealed, "out": out, "notes": notes}
    return page.block_lines("study", "sealed", **facts, words=in_words(sealed.digest))


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write texts to files by name."""
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")


_SIZES = (100, 300, 1000, 3000, 10000)
"""Numbers of patients that are shown where the study names none."""

MOST = 0.5
"""Gap from which on a number of patients is said to show nothing."""


def forecast(study: Study) -> list[str]:
    """Return in sentences what a study costs, and which gaps it will name at its sites."""
    (std,) = set(study.plan.noise_std or (0.0,))
    about_sizes = {name: about for name, about in study.sites.items() if about}
    sizes = sorted(set(about_sizes.values()) or _SIZES)
    # of the last release: each site, and against each earlier one each site and all of them
    tests = 2 * len(study.sites) + (study.per_year * study.years - 1) * (len(study.sites) + 1)
    edges = np.array([0.0, *study.cuts, 1.0])
    parts = len(study.groups) + 1
    rest: dict[str, Any] = {"edges": edges, "std": std * math.sqrt(parts), "tests": tests}
    rest |= {"rate": study.model.rate, "level": ERROR / study.per_year}
    gaps = {size: detectable(size, **rest) for size in sizes}
    facts: dict[str, Any] = {"study": study, "std": std, "gaps": gaps, "sizes": about_sizes}
    facts |= {"most": MOST, "points": least_points, "seen": SEEN, "error": ERROR}
    return page.block_lines("study", "forecast", **facts)


CONTROL, LOG, REGISTERED = "control", "server.log", "registered.json"
"""In the server's folder: where the control port is, what Flower says, node -> a site's key."""

_STARTS_S, _TICK = 90.0, 0.2


def serve(
    path: Path,
    *,
    at: str = "127.0.0.1:8000",
    listen: str | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Run the server of a sealed study until a signal comes.

    Parameters
    ----------
    path
        the sealed study; beside it `STUDY-server/`, which `fedcal study kit` made
    at
        HOST:PORT of the control port, which has no login: loopback, or a private network
    listen
        HOST:PORT for the sites; None = where the study's file says
    said
        gets lines for the terminal

    Raises
    ------
    InputError
        A file is missing or another's, or another process serves this folder.
    FedcalError
        A port is taken, or Flower's processes ended.
    """
    flower_internals_site.check_flower()
    sealed = Sealed.read(path)
    home = folder_of(path, sealed.study.study, "server").resolve()
    files = {name: home / name for name in ("ca.crt", "server.crt", "server.key", "executor.key")}
    for file in files.values():
        must_exist(file, f"carry the folder {home.name} to the server")
    authority = files["ca.crt"].read_text("ascii", "replace")
    checks.same(f"authority of the server, in {files['ca.crt']},", authority, sealed.authority)
    public = tls.read_address("server", sealed.study.server)
    sites = public if listen is None else tls.read_address("--listen", listen)
    if listen is None and not is_here(public.host):
        raise InputError(
            f"{public.host}, where {path} has its server, is no address of this machine: give "
            f"--listen ADDRESS:{public.port} (0.0.0.0: all of them) where a router leads here"
        )
    ours = tls.read_address("--control", at)
    for where in (ours, sites):
        _check_free(where)
    secret = ("--superexec-auth-secret-file", files["executor.key"])
    words: list[str | Path] = [
        *("flower-superlink", "--isolation", "process", "--enable-supernode-auth"),
        *("--database", home / "state.db", "--host", ours.host, "--port", str(ours.port)),
        *("--fleet-api-address", str(sites), "--disable-runtime-dependency-installation"),
        *("--ssl-ca-certfile", files["ca.crt"], "--ssl-certfile", files["server.crt"]),
        *("--ssl-keyfile", files["server.key"], *secret),
    ]
    words += flower.health_options()
    executes: list[str | Path] = ["flower-superexec", "--runtime-api-address", str(ours), *secret]
    executes += ["--root-certificates", files["ca.crt"]]
    programs, log = flower.scripts("a server", "superlink", "superexec"), home / LOG
    lock, ended = (
        locked(home / ".lock", f"another process serves {home}"),
        contextlib.suppress(Terminated),
    )
    with ended, lock, flower.run_folder() as private, until_terminated():
        env = flower.quiet_environment(private / "home")
        env["PATH"] = os.pathsep.join((str(programs), env.get("PATH", os.defpath)))
        (private / "home").mkdir()
        with ProcessTree(words, folder=private, env=env, log=log) as superlink:
            _wait(superlink, (ours, sites), log)
            with control(str(ours), files["ca.crt"]) as commands:
                enrol(commands, sealed, home)
            with ProcessTree(executes, folder=private, env=env, log=log) as executor:
                write_file(home / CONTROL, f"{ours}\n")
                say(
                    f"{sealed.study.study}: serving {len(sealed.roster.sites)} sites at {public}, "
                    f"digest {in_words(sealed.digest)}; Ctrl-C ends it"
                )
                while superlink.poll() is None and executor.poll() is None:
                    time.sleep(_TICK)
                raise FedcalError(f"a process has ended: {_last(log)}; its log is {log}")
    (home / CONTROL).unlink(missing_ok=True)


def enrol(commands: Control, sealed: Sealed, home: Path) -> None:
    """Register the sites' keys; sites that are no longer in the study are removed."""
    path = home / REGISTERED
    known: dict[str, str] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    folder = home / "keys"
    folder.mkdir(exist_ok=True)
    for name, key in sealed.connections.items():
        if key not in known.values():
            write_file(folder / f"{name}.pub", key + "\n")
            if node := commands.register(folder / f"{name}.pub"):
                known[node] = key
    for node in [node for node, key in known.items() if key not in sealed.connections.values()]:
        commands.revoke(node)
        del known[node]
    write_file(path, json.dumps(known))


def _check_free(at: tls.Address) -> None:
    """FedcalError if another process has a port, or the address is not this machine's.

    Flower's servers would share it without a word, and sites would reach either.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(at)
        except OSError as e:
            raise FedcalError(f"cannot listen at {at}: {e.strerror}") from None


def _wait(superlink: ProcessTree, ports: tuple[tls.Address, ...], log: Path) -> None:
    """Return once both ports answer; FedcalError if they do not."""
    deadline = time.monotonic() + _STARTS_S
    for at in ports:
        host = "127.0.0.1" if at.host == "0.0.0.0" else at.host
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection((host, at.port), 1.0).close()
                break
            if superlink.poll() is not None or time.monotonic() > deadline:
                raise FedcalError(f"the SuperLink did not start: {_last(log)}; its log is {log}")
            time.sleep(_TICK)


def _last(log: Path) -> str:
    return flower.complaint(log.read_text("utf-8", "replace")[-4000:])
