"""The server of a study: SuperLink and executor in one process group, from one sealed file.

It needs no signing key. Whoever runs it learns what `fedcal.secure_aggregation` says that a server
learns, as long as somebody else chose the sites' keys: so it stands elsewhere than the coordinator.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fedcal.core.checks import same
from fedcal.core.errors import FedcalError, InputError
from fedcal.core.flower_internals import check_flower
from fedcal.experiments.deploy.fleet import Address, read_address
from fedcal.experiments.deploy.run import Control, control
from fedcal.experiments.deploy.site import Terminated, until_terminated
from fedcal.experiments.runs.engines.processes import ProcessTree
from fedcal.experiments.runs.engines.superlink import (
    complaint,
    quiet_environment,
    run_folder,
    scripts,
)
from fedcal.experiments.study.sealed import Sealed, write_text
from fedcal.secure_aggregation.roster import Roster, in_words
from fedcal.storage.atomic import locked

CONTROL, LOG, REGISTERED = "control", "server.log", "registered.json"
"""In the server's folder: where the control port is, what Flower says, node -> a site's key."""

_STARTS_S, _TICK = 90.0, 0.2


def folder_of(path: Path, study: str, part: str) -> Path:
    """Return the folder of a study beside its file: of `server`, `coordinator`, `kits`."""
    return path.parent / f"{study}-{part}"


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
        HOST:PORT for the sites; None = all addresses, and the port that the study names
    said
        gets lines for the terminal

    Raises
    ------
    InputError
        A file is missing or another's, or another process serves this folder.
    FedcalError
        A port is taken, or Flower's processes ended.
    """
    check_flower()
    sealed = Sealed.read(path)
    home = folder_of(path, sealed.study.study, "server").resolve()
    files = {name: home / name for name in ("ca.crt", "server.crt", "server.key", "executor.key")}
    if missing := [file for file in files.values() if not file.is_file()]:
        raise InputError(f"{missing[0]} is missing: carry the folder {home.name} to the server")
    authority = files["ca.crt"].read_text("ascii", "replace")
    same(f"authority of the server, in {files['ca.crt']},", authority, sealed.authority)
    named = read_address("server", sealed.study.server)
    sites = Address("0.0.0.0", named.port) if listen is None else read_address("--listen", listen)
    ours = read_address("--control", at)
    for where in (ours, sites):
        _check_free(where)
    roster(home, sealed)
    secret = ("--superexec-auth-secret-file", files["executor.key"])
    words: list[str | Path] = [
        *("flower-superlink", "--isolation", "process", "--enable-supernode-auth"),
        *("--database", home / "state.db", "--host", ours.host, "--port", str(ours.port)),
        *("--fleet-api-address", str(sites), "--disable-runtime-dependency-installation"),
        *("--ssl-ca-certfile", files["ca.crt"], "--ssl-certfile", files["server.crt"]),
        *("--ssl-keyfile", files["server.key"], *secret),
    ]
    executes: list[str | Path] = ["flower-superexec", "--runtime-api-address", str(ours), *secret]
    executes += ["--root-certificates", files["ca.crt"]]
    programs, log = scripts("a server", "superlink", "superexec"), home / LOG
    lock, ended = locked(home / ".lock", f"another process serves {home}"), suppress(Terminated)
    with ended, lock, run_folder() as private, until_terminated():
        env = quiet_environment(private / "home")
        env["PATH"] = os.pathsep.join((str(programs), env.get("PATH", os.defpath)))
        (private / "home").mkdir()
        with ProcessTree(words, folder=private, env=env, log=log) as superlink:
            _wait(superlink, (ours, sites), log)
            with control(str(ours), files["ca.crt"]) as commands:
                enrol(commands, sealed, home)
            with ProcessTree(executes, folder=private, env=env, log=log) as executor:
                write_text(home / CONTROL, f"{ours}\n")
                say(
                    f"{sealed.study.study}: serving {len(sealed.roster.sites)} sites at {named}, "
                    f"digest {in_words(sealed.digest)}; Ctrl-C ends it"
                )
                while superlink.poll() is None and executor.poll() is None:
                    time.sleep(_TICK)
                raise FedcalError(f"a process has ended: {_last(log)}; its log is {log}")
    (home / CONTROL).unlink(missing_ok=True)


def roster(home: Path, sealed: Sealed) -> Path:
    """Return the file of the sites for the run, in the server's folder."""
    path = home / "federation.toml"
    if not path.exists() or Roster.read(path) != sealed.roster:
        write_text(path, sealed.roster.to_toml())
    return path


def enrol(commands: Control, sealed: Sealed, home: Path) -> None:
    """Register the sites' keys; sites that are no longer in the study are removed."""
    path = home / REGISTERED
    known: dict[str, str] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    keys = home / "keys"
    keys.mkdir(exist_ok=True)
    new = {name: key for name, key in sealed.connections.items() if key not in known.values()}
    for name, key in new.items():
        write_text(keys / f"{name}.pub", key + "\n")
    for file, node in commands.register([keys / f"{name}.pub" for name in new]):
        if node.isdecimal():
            known[node] = sealed.connections[file.stem]
    for node in [node for node, key in known.items() if key not in sealed.connections.values()]:
        commands.revoke(node)
        del known[node]
    write_text(path, json.dumps(known))


def _check_free(at: Address) -> None:
    """FedcalError if another process has a port, or the address is not this machine's."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(at)
        except OSError as e:
            raise FedcalError(f"cannot listen at {at}: {e.strerror}") from None


def _wait(superlink: ProcessTree, ports: tuple[Address, ...], log: Path) -> None:
    """Return once both ports answer; FedcalError if they do not."""
    deadline = time.monotonic() + _STARTS_S
    for at in ports:
        host = "127.0.0.1" if at.host == "0.0.0.0" else at.host
        while True:
            with suppress(OSError):
                socket.create_connection((host, at.port), 1.0).close()
                break
            if superlink.poll() is not None or time.monotonic() > deadline:
                raise FedcalError(f"the SuperLink did not start: {_last(log)}; its log is {log}")
            time.sleep(_TICK)


def _last(log: Path) -> str:
    return complaint(log.read_text("utf-8", "replace")[-4000:])
