"""What docker-compose.yml runs and what the guide tells one to type, as processes on loopback."""

import json
import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import compose
import pytest
from machine import Machine

from fedcal.experiments.deploy import certificates

pytestmark = pytest.mark.slow

SITES = ("site-a", "site-b", "site-c")
GUIDE = compose.ROOT / "docs" / "guide" / "deploy.md"
SERVERS = ("flower-superlink", "flower-superexec", "fedcal site")
"""What runs until it is ended."""


def make_certificates(folder: Path) -> None:
    """As `make certificates` does."""
    text = (compose.ROOT / "Makefile").read_text()
    names, sites = (re.findall(rf"^{n} \?= (.*)$", text, re.M)[0] for n in ("NAMES", "SITES"))
    certificates.make_certificates(folder, names=names.split(), sites=sites.split())


def blocks_of(section: str) -> list[tuple[str, str]]:
    """(language, text) of the blocks of a section of the guide."""
    text = GUIDE.read_text("utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"```(console|python)\n(.*?)```", text, re.DOTALL)


def test_in_containers_as_the_guide_says(tmp_path):
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


def test_one_machine_as_the_guide_says(tmp_path):
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
