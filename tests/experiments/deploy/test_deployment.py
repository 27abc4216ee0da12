"""What docker-compose.yml runs and what the guide tells one to type, as processes on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import compose
import numpy as np
import pytest
import superlink

from fedcal.experiments.deploy import certificates
from fedcal.experiments.engines.processes import ProcessTree

pytestmark = pytest.mark.slow

PATIENCE = 90.0
SITES = ("site-a", "site-b", "site-c")
GUIDE = compose.ROOT / "docs" / "guide" / "deploy.md"
SERVERS = ("flower-superlink", "flower-superexec", "fedcal site")
"""What runs until it is ended."""


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


def make_certificates(folder: Path) -> None:
    """As `make certificates` does."""
    text = (compose.ROOT / "Makefile").read_text()
    names, sites = (re.findall(rf"^{n} \?= (.*)$", text, re.M)[0] for n in ("NAMES", "SITES"))
    certificates.make_certificates(folder, names=names.split(), sites=sites.split())


def write_data(folder: Path) -> None:
    folder.mkdir()
    rng = np.random.default_rng(0)
    for site in "abc":
        labels = rng.integers(0, 10, 60)
        logits = 3 * (rng.normal(size=(60, 10)) + np.eye(10)[labels])
        np.savez(folder / f"{site}.npz", logits=logits, labels=labels)


def test_the_services_of_the_compose_file_work_together(tmp_path: Path) -> None:
    make_certificates(tmp_path / "certificates")
    write_data(tmp_path / "data")
    file = compose.read()
    with Machine(tmp_path) as machine:

        def start(name: str) -> None:
            machine.start(name, *machine.place.local(name, file))

        def tools(*words: str) -> str:
            return machine.call(*machine.place.local("tools", file, list(words)))

        start("superlink")
        start("executor")
        machine.until(machine.listens)
        *reached, known = ("--control=superlink:8000", "--root-certificates=/ca.crt")
        keys = [f"/sites/{site}.pub" for site in "abc"]
        tools("fedcal", "deploy", "register", *keys, *reached, known)
        for name in SITES:
            start(name)
        _, env = machine.place.local("tools", file)
        machine.until(lambda: machine.online(env) == len(SITES))
        machine.call(*machine.place.local("tools", file))
        for name in ("superlink", "executor", *SITES):
            kind, *test = file["services"][name]["healthcheck"]["test"]
            words = ["sh", "-c", *test] if kind == "CMD-SHELL" else test
            machine.call(*machine.place.local(name, file, words))
        home = tmp_path / "volumes"
        assert (home / "superlink" / "state.db").is_file()
        assert {p.name for p in home.iterdir()} >= {"superlink", *SITES}
    assert not machine.listens()


def blocks_of(section: str) -> list[tuple[str, str]]:
    """(language, text) of the blocks of a section of the guide."""
    text = GUIDE.read_text("utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"```(console|python)\n(.*?)```", text, re.DOTALL)


def test_one_machine_as_the_guide_says(tmp_path: Path) -> None:
    env = {
        **os.environ,
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
        "PYTHONPATH": str(compose.ROOT),
        "FLWR_HOME": str(tmp_path / "home"),
        "FLWR_TELEMETRY_ENABLED": "0",
    }
    with Machine(tmp_path) as machine:
        for language, text in blocks_of("One machine"):
            if language == "python":
                machine.call([sys.executable, "-c", text], env)
                continue
            for line in text.splitlines():
                words = shlex.split(machine.place.word(line.removeprefix("$ "), {}))
                while "=" in words[0]:
                    words = words[1:]  # no telemetry: `env` says so
                if "--port" in words:
                    words[words.index("--port") + 1] = str(machine.place.control)
                if " ".join(words).startswith(SERVERS):
                    machine.start(f"{words[0]}-{len(machine.trees)}", words, env)
                    continue
                if words[0] == "fedcal":  # a person waits for what the servers say
                    sites = sum(name.startswith("fedcal") for name in machine.trees)
                    machine.until(machine.listens)
                    machine.until(lambda sites=sites: machine.online(env) == sites)
                machine.call(words, env)
        assert (tmp_path / "first" / "result.json").is_file()
        assert (tmp_path / "first" / "calibrator.npz").is_file()
        for site in SITES:
            (judged,) = (tmp_path / site / "results").glob("*/metrics.json")
            numbers = json.loads(judged.read_text())
            assert numbers["after"]["ece"] < numbers["before"]["ece"]
    assert not machine.listens()
