"""`docker-compose.yml` as Compose reads it, and its services' commands for this machine.

There is no Docker here: the tests run the file's own commands as processes. What a container
has and a process has not (mounts, host names, ports) is put in by `Place.local`.
"""

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"


def read(environment: Mapping[str, str] | None = None, file: Path = FILE) -> dict[str, Any]:
    """The file with its variables put in, as Compose does it."""
    given = environment or {}
    text = re.sub(
        r"\$\{(\w+):-([^}]*)\}", lambda found: given.get(found[1]) or found[2], file.read_text()
    )
    content: dict[str, Any] = yaml.safe_load(text)
    return content


@dataclass(frozen=True)
class Place:
    """Where the services run as processes: a folder in the place of the file's, and two ports."""

    folder: Path
    control: int
    fleet: int

    @property
    def addresses(self) -> dict[str, str]:
        """What the file says -> what is meant here."""
        return {
            "--host=172.28.14.2": "--host=127.0.0.1",
            "--port=8000": f"--port={self.control}",
            "superlink:8000": f"127.0.0.1:{self.control}",
            "127.0.0.1:8000": f"127.0.0.1:{self.control}",
            "('172.28.14.2', 8000)": f"('127.0.0.1', {self.control})",
            "superlink:9092": f"127.0.0.1:{self.fleet}",
            "0.0.0.0:9092": f"127.0.0.1:{self.fleet}",
            "127.0.0.1:9092": f"127.0.0.1:{self.fleet}",
        }

    def mounts(self, name: str, service: Mapping[str, Any], file: Mapping[str, Any]) -> dict:
        """Path in the container -> path here; folders are made."""
        found: dict[str, Path] = {}
        for entry in service.get("tmpfs", ()):
            found[entry.split(":")[0]] = self.folder / "tmpfs" / name
        for kind, home in (("configs", "/"), ("secrets", "/run/secrets/")):
            for entry in service.get(kind, ()):
                long = {"source": entry, "target": entry} if isinstance(entry, str) else entry
                target = os.path.join(home, long["target"])
                found[target] = self.folder / file[kind][long["source"]]["file"]
        for entry in service.get("volumes", ()):
            if isinstance(entry, str):
                source, target = entry.split(":")[:2]
                found[target] = self.folder / "volumes" / source
            elif entry["type"] == "volume":
                found[entry["target"]] = self.folder / "volumes" / entry["source"]
            else:
                found[entry["target"]] = self.folder / entry["source"]
        for path in found.values():
            if {"tmpfs", "volumes"} & set(path.relative_to(self.folder).parts):
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return found

    def word(self, word: str, mounts: Mapping[str, Path]) -> str:
        """A word of a command, or the value of a variable, as it reads on this machine."""
        for said, meant in self.addresses.items():
            word = word.replace(said, meant)
        option, equals, value = word.rpartition("=")
        for target, path in mounts.items():
            if value == target or value.startswith(f"{target}/"):
                value = f"{path}{value.removeprefix(target)}"
                break
        return f"{option}{equals}{value}"

    def local(
        self, name: str, file: Mapping[str, Any], words: list[str] | None = None
    ) -> tuple[list[str], dict[str, str]]:
        """A service's command, or `words` run in its container, and its environment."""
        service = file["services"][name]
        mounts = self.mounts(name, service, file)
        words = service["command"] if words is None else words
        environment = {k: self.word(v, mounts) for k, v in service["environment"].items()}
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        return [self.word(w, mounts) for w in words], {"PATH": path, **environment}
