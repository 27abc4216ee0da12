"""Three real sites, a SuperLink with a database and its executor, as processes on loopback."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from machine import Machine
from numpy.typing import NDArray

from fedcal.experiments.deploy.certificates import make_certificates
from fedcal.privacy.ledger import Ledger
from fedcal.strategies.server.run_folder import read_progress

SITES = ("a", "b", "c")
BIN = Path(sys.executable).parent


class Deployment:
    """Sites, a SuperLink with a database, and its executor."""

    sites = SITES

    def __init__(self, machine: Machine) -> None:
        self.machine, self.folder = machine, machine.folder
        self.env = {
            **os.environ,
            "PATH": os.pathsep.join((str(BIN), os.environ["PATH"])),
            "FLWR_HOME": str(self.folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
        }
        names = ["127.0.0.1", "localhost", "superlink"]
        make_certificates(self.folder / "certificates", names=names, sites=self.sites)
        control = f"127.0.0.1:{machine.place.control}"
        self.reach = ["--control", control, "--root-certificates", "certificates/ca.crt"]

    def superlink(self) -> None:
        files = [
            f"--ssl-{kind}=certificates/{name}"
            for kind, name in (
                ("ca-certfile", "ca.crt"),
                ("certfile", "server.crt"),
                ("keyfile", "server.key"),
            )
        ]
        place = self.machine.place
        words = [
            *("flower-superlink", *files, "--enable-supernode-auth", "--isolation", "process"),
            *("--superexec-auth-secret-file", "certificates/executor.key"),
            *("--database", "state.db", "--host", "127.0.0.1", "--port", str(place.control)),
            *("--fleet-api-address", f"127.0.0.1:{place.fleet}"),
            "--disable-runtime-dependency-installation",
        ]
        self.machine.start("superlink", words, self.env)
        self.machine.until(self.machine.listens)

    def executor(self) -> None:
        words = [
            *("flower-superexec", "--runtime-api-address", self.reach[1]),
            *("--root-certificates", "certificates/ca.crt"),
            *("--superexec-auth-secret-file", "certificates/executor.key"),
        ]
        self.machine.start("executor", words, self.env)

    def up(self) -> None:
        """All that waits for sites, which it knows."""
        self.superlink()
        self.executor()
        keys = [f"certificates/sites/{name}.pub" for name in self.sites]
        self.machine.call(["fedcal", "deploy", "register", *keys, *self.reach], self.env)

    def site(self, name: str, *extra: str, arrays: dict[str, NDArray[Any]] | None = None) -> None:
        if arrays is None:
            rng = np.random.Generator(np.random.Philox(key=ord(name)))
            labels = rng.integers(0, 3, 400)
            arrays = {"logits": 4 * (rng.normal(size=(400, 3)) + np.eye(3)[labels])}
            arrays["labels"] = labels
        np.savez(self.folder / f"{name}.npz", **arrays)
        words = [
            *("fedcal", "site", "--data", f"{name}.npz"),
            *(() if "--state" in extra else ("--state", f"site-{name}")),
            *("--fleet", f"127.0.0.1:{self.machine.place.fleet}"),
            *("--root-certificates", "certificates/ca.crt"),
            *("--key", f"certificates/sites/{name}.key", *extra),
        ]
        self.machine.start(f"site-{name}", words, self.env)

    def fedcal(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["fedcal", *words],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, out: str, *more: str) -> subprocess.Popen[str]:
        private = ["--epsilon", "8", "--unit", "example", "--ledger", f"{out}.db", "--cap", "8"]
        method = ["--method", "fednewton", "--rounds", "4"]
        return self.fedcal(
            *("deploy", "run", *self.reach, "--clients", "3", *method, *private, "--out", out),
            *more,
        )

    def after_round(self, number: int, out: str, run: subprocess.Popen[str]) -> None:
        deadline = time.monotonic() + 90
        while len(read_progress(self.folder / out / "server")) < number:
            assert run.poll() is None, run.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def charged(self, out: str) -> tuple[int, ...]:
        with Ledger(self.folder / f"{out}.db") as ledger:
            (entry,) = ledger.entries()
        return entry.charged

    def result(self, out: str) -> dict[str, Any]:
        told: dict[str, Any] = json.loads((self.folder / out / "result.json").read_text())
        return told
