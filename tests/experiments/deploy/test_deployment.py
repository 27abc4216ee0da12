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


def blocks_of(section: str) -> list[tuple[str, str]]:
    """(language, text) of the blocks of a section of the guide."""
    text = GUIDE.read_text("utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"```(console|python)\n(.*?)```", text, re.DOTALL)


def test_in_containers_as_the_guide_says(tmp_path: Path) -> None:
    """Compose's part is played by this function: mounts, names and ports; no more."""
    file = compose.read()
    (data,) = [text for language, text in blocks_of("One machine") if language == "python"]
    with Machine(tmp_path) as machine:
        _, env = machine.place.local("tools", file)
        machine.call([sys.executable, "-c", data], {**env, "PYTHONPATH": str(compose.ROOT)})

        def up(services: Sequence[str]) -> None:
            for name in [s for s in services if s not in machine.trees]:
                machine.start(name, *machine.place.local(name, file))
            machine.until(machine.listens)
            sites = sum(name in SITES for name in machine.trees)
            machine.until(lambda: machine.online(env) == sites)

        ((_, typed),) = blocks_of("One machine, in containers")
        for line in typed.splitlines():
            match shlex.split(line.removeprefix("$ ")):
                case ["make", "certificates"]:
                    make_certificates(tmp_path / "certificates")
                case ["docker", "compose", "build"]:
                    pass
                case ["docker", "compose", "up", "--detach", *services]:
                    up(services or [n for n, s in file["services"].items() if "profiles" not in s])
                case ["docker", "compose", "run", "--rm", "tools", *words]:
                    machine.call(*machine.place.local("tools", file, words))
                case ["docker", "compose", "cp", source, _]:
                    name, _, path = source.partition(":")
                    ((folder,), _) = machine.place.local(name, file, [path])
                    assert (Path(folder) / "calibrator.npz").is_file()
                case words:
                    raise AssertionError(words)
        assert machine.trees.keys() == {"superlink", "executor", *SITES}
        machine.call(*machine.place.local("tools", file))
        for name in machine.trees:
            kind, *test = file["services"][name]["healthcheck"]["test"]
            words = ["sh", "-c", *test] if kind == "CMD-SHELL" else test
            machine.call(*machine.place.local(name, file, words))
        assert (tmp_path / "volumes" / "superlink" / "state.db").is_file()
        for name in SITES:
            assert list((tmp_path / "volumes" / name / "results").glob("*/metrics.json"))
    assert not machine.listens()


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
