"""Services that run as processes in one folder, and end with the test."""

from __future__ import annotations

import contextlib
import json
import shlex
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import compose
import superlink

from fedcal.experiments.runs.engines.processes import ProcessTree

PATIENCE = 90.0


class Machine:
    """A folder with running services, all of which end with the block."""

    def __init__(self, folder: Path) -> None:
        self.place = compose.Place(folder, superlink.free_port(), superlink.free_port())
        self.folder, self.trees = folder, {}
        self.stack = contextlib.ExitStack()

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *error: object) -> None:
        self.stack.close()

    def start(self, name: str, words: Sequence[str], env: Mapping[str, str]) -> None:
        tree = ProcessTree(words, folder=self.folder, env=env, log=self.folder / f"{name}.log")
        self.trees[name] = self.stack.enter_context(tree)

    def call(self, words: Sequence[str], env: Mapping[str, str]) -> str:
        done = subprocess.run(
            words, cwd=self.folder, env=env, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}{done.stderr}{self.logs()}"
        return done.stdout

    def logs(self) -> str:
        ends = (f.read_text("utf-8", "replace")[-1500:] for f in self.folder.glob("*.log"))
        return "\n---\n".join(ends)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            ended = {n: t.poll() for n, t in self.trees.items() if t.poll() is not None}
            assert not ended, f"{ended}\n{self.logs()}"
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.5)

    def listens(self) -> bool:
        with contextlib.suppress(OSError):
            for port in (self.place.control, self.place.fleet):
                socket.create_connection(("127.0.0.1", port), 1.0).close()
            return True
        return False

    def online(self, env: Mapping[str, str]) -> int:
        """How many SuperNodes Flower says are online."""
        home = self.folder / "flwr"
        home.mkdir(exist_ok=True)
        root = self.folder / "certificates" / "ca.crt"
        (home / "config.toml").write_text(
            f'[superlink.here]\naddress = "127.0.0.1:{self.place.control}"\n'
            f'root-certificates = "{root}"\n'
        )
        words = ["flwr", "supernode", "list", "here", "--format", "json"]
        text = self.call(words, {**env, "FLWR_HOME": str(home)})
        nodes = json.loads(text[text.index("{") :])["nodes"]
        return sum(node["status"] == "online" for node in nodes)
