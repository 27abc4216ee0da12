"""Say what is installed, which command lacks what, and what the machine has; the exit code is 0
whatever is lacking."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import webbrowser
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from fedcal import __version__
from fedcal.core.errors import InputError
from fedcal.core.optional import EXTRAS, Extra, Package, install, packages
from fedcal.core.parallel import usable_cores
from fedcal.experiments.cli.main import COMMANDS
from fedcal.experiments.cli.parameters import Json, Quiet
from fedcal.experiments.report.tables import TextTable, print_table
from fedcal.experiments.report.terminal import console
from fedcal.experiments.runs.engines.superlink import scripts
from fedcal.experiments.runs.files import to_json
from fedcal.storage.locks import posix_locks

EXAMPLES = ("fedcal doctor", "fedcal doctor --json")

_LOCKING = ("train --out", "site", "deploy")
_PORTS = (8000, 9092)  # of a SuperLink, where nothing else is said
_DEVELOPERS = {"all", "bench", "dev", "docs"}


class Lack(NamedTuple):
    """Command lines that lack something, and what; none = Python alone."""

    commands: tuple[str, ...]
    line: str
    all: bool = False
    """Nothing of the commands runs."""


def command(quiet: Quiet = False, json: Json = False) -> None:
    """Look, and show it."""
    found = look()
    if json:
        print(to_json(found), end="")
    elif not quiet:
        to = console()
        to.print("\n".join([found["summary"], *found["lacking"]]))
        parts = ("versions", "extras", "machine")
        rows = [(name, str(value or "?")) for part in parts for name, value in found[part].items()]
        print_table(to, TextTable(("", "here"), rows, left={0, 1}), edge=True)


def look() -> dict[str, Any]:
    """What `--json` prints: sentences, lines by command, versions, extras and the machine."""
    base = list(packages())
    extras = {name: sorted(packages(name)) for name in _extras()}
    lacks = [*_missing(extras), *_refused()]
    stopped = {name for lack in lacks if lack.all for name in lack.commands}
    runs = ", ".join(name for name in COMMANDS if " " not in name and name not in stopped)
    whole = "all but what the next lines name" if lacks else "with every option"
    return {
        "summary": f"fedcal {runs} run here, {whole}.",
        "lacking": [f"fedcal {', '.join(n.commands) or 'in Python'}: {n.line}" for n in lacks],
        "commands": {
            name: [n.line for n in lacks if name in {c.partition(" --")[0] for c in n.commands}]
            for name in COMMANDS
        },
        "versions": {"fedcal": __version__, "Python": platform.python_version()}
        | {package.name: package.version for package in base},
        "extras": {f"fedcal[{name}]": _whole(own) for name, own in extras.items()},
        "machine": _machine(),
    }


def _extras() -> list[str]:
    """Those that the metadata names, but for developers'."""
    names = metadata.metadata("fedcal").get_all("Provides-Extra") or []
    return [name for name in names if name not in _DEVELOPERS]


def _lost(own: Sequence[Package]) -> str:
    return ", ".join(str(package) for package in own if not package.fits)


def _whole(own: Sequence[Package]) -> str:
    lost = _lost(own)
    return f"lacks {lost}" if lost else ", ".join(map(str, own))


def _missing(extras: Mapping[str, Sequence[Package]]) -> Iterator[Lack]:
    for name, own in extras.items():
        if lost := _lost(own):
            use = EXTRAS.get(name, Extra((), f"the extra {name}"))
            yield Lack(use.commands, f"{use.what} lack {lost}: {install(name)}", use.all)


def _refused() -> Iterator[Lack]:
    """What this system, or this Flower, does not run."""
    try:
        posix_locks(Path("its folder"))
    except InputError as e:
        yield Lack(_LOCKING, str(e), all=True)
        return
    try:
        scripts("Flower's engine", "superlink", "supernode", "superexec", "flwr")
        from fedcal.clients.site.process.flower_guard import check_flower

        check_flower()
    except (InputError, ImportError) as e:
        yield Lack(("site", "simulate --engine grpc"), str(e), all=True)


def _machine() -> dict[str, Any]:
    """None = not known."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": usable_cores(),
        "free memory, GB": _memory(),
        "free disk here, GB": round(shutil.disk_usage(os.curdir).free / 1e9, 1),
        "browser for reports": _browser(),
        "ports on 127.0.0.1": "free" if _bound(0) else "refused",
    } | {f"port {port} (SuperLink)": "free" if _bound(port) else "taken" for port in _PORTS}


def _memory() -> float | None:
    """What Linux says that programs may still take."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        (kilobytes,) = (line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError):
        return None
    return round(int(kilobytes) * 1024 / 1e9, 1)


def _browser() -> str:
    try:
        return str(getattr(webbrowser.get(), "name", "the system's"))
    except webbrowser.Error:
        return "none found"


def _bound(port: int) -> bool:
    """Whether a server could have the port now."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
