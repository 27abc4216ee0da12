"""Processes on Linux: their parents, and the addresses where they listen."""

import ipaddress
import os
import time
from collections.abc import Callable
from pathlib import Path


def processes() -> dict[int, int]:
    """Process -> its parent, of all that run and are no zombies."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = entry.joinpath("stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if state != "Z":
                found[int(entry.name)] = int(parent)
    return found


def descendants(root: int) -> set[int]:
    parents, found = processes(), {root}
    while new := {p for p, parent in parents.items() if parent in found} - found:
        found |= new
    return found - {root}


def listening(of: set[int]) -> set[str]:
    """Addresses that these processes listen on."""
    inodes = set()
    for process in of:
        for handle in Path(f"/proc/{process}/fd").glob("*"):
            try:
                inodes.add(os.readlink(handle))
            except OSError:
                continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] == "0A" and f"socket:[{columns[9]}]" in inodes:
                raw = bytes.fromhex(columns[1].partition(":")[0])
                words = [raw[i : i + 4][::-1] for i in range(0, len(raw), 4)]
                address = ipaddress.ip_address(b"".join(words))
                mapped = getattr(address, "ipv4_mapped", None)
                found.add(str(mapped or address))
    return found


def until(condition: Callable[[], bool], patience: float = 60.0) -> bool:
    """Return whether it holds within this number of seconds."""
    deadline = time.monotonic() + patience
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()
