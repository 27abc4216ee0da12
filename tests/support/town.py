"""A folder in which people type the lines of a study; what runs on ends with the block."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from superlink import free_port

from fedcal.clients.site.store import records_in
from fedcal.privacy.ledger import Ledger

PATIENCE = 120.0
SITES = ("alder", "birch", "cedar", "dogwood", "elm")


class Town:
    """A study with sites of which this machine has all, and a server on ports of its own."""

    def __init__(self, folder: Path, sites: tuple[str, ...] = SITES) -> None:
        self.folder, self.fleet, self.control = folder, free_port(), free_port()
        self.sites = sites
        self.typed, self.running = 0, dict[str, subprocess.Popen[bytes]]()
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        self.env = {**os.environ, "PATH": path, "FLWR_TELEMETRY_ENABLED": "0"}

    def __enter__(self) -> "Town":
        return self

    def __exit__(self, *error: object) -> None:
        for name in reversed([*self.running]):
            self.end(name, signal.SIGTERM)

    def here(self, line: str) -> str:
        """A line of the guide with the ports of this machine."""
        line = line.replace("localhost:9092", f"localhost:{self.fleet}")
        return line.replace("study serve", f"study serve --control 127.0.0.1:{self.control}")

    def call(self, line: str, code: int = 0) -> str:
        done = subprocess.run(
            ["bash", "-c", self.here(line)],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == code, f"{line}\n{done.stdout}{done.stderr}{self.logs()}"
        return done.stdout + done.stderr

    def begin(self, name: str, line: str) -> None:
        log = self.folder / f"{name}.log"
        with log.open("ab") as out:
            self.running[name] = subprocess.Popen(
                ["bash", "-c", f"exec {self.here(line)}"],
                cwd=self.folder,
                env=self.env,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def end(self, name: str, how: int) -> None:
        process = self.running.pop(name)
        process.send_signal(how)
        process.wait(30)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text("utf-8", "replace")

    def logs(self) -> str:
        return "".join(
            f"\n--- {f.name}\n{f.read_text()[-1500:]}" for f in self.folder.glob("*.log")
        )

    def until(self, name: str, words: str, start: int = 0) -> None:
        deadline = time.monotonic() + PATIENCE
        while words not in self.log(name)[start:]:
            assert time.monotonic() < deadline, f"{words}\n{self.logs()}"
            time.sleep(0.2)

    def start(self, site: str) -> None:
        seen = len(self.log(site)) if (self.folder / f"{site}.log").exists() else 0
        self.begin(site, f"fedcal site start sepsis-kits/{site}")
        self.until(site, "connected to", seen)

    def start_all(self) -> None:
        for site in self.sites:
            self.begin(site, f"fedcal site start sepsis-kits/{site}")
        for site in self.sites:
            self.until(site, "connected to")

    def serve(self) -> None:
        seen = len(self.log("serve")) if (self.folder / "serve.log").exists() else 0
        self.begin("serve", "fedcal study serve sepsis.sealed")
        self.until("serve", f"serving {len(self.sites)} sites", seen)

    def follow(self, line: str) -> None:
        """Do what the guide says: some lines run until they are stopped."""
        self.typed += 1
        if line.startswith("fedcal study serve"):
            self.begin("serve", line)
            self.until("serve", "serving 5 sites")
        elif "site start" in line:
            assert re.search(r"for site in (.*); do fedcal site start sepsis-kits/\$site & ", line)
            self.start_all()
        else:
            self.call(line)

    def agree(self, options: str, rows: str = "{site}.csv") -> None:
        """A study with these options from its file to its sites' start."""
        names = ",".join(self.sites)
        self.call(
            f"fedcal study init sepsis.toml --sites {names} --classes survived,sepsis"
            f" --server localhost:9092 {options}"
        )
        self.call("fedcal study kit sepsis.toml")
        for site in self.sites:
            self.call(f"fedcal site join sepsis-kits/{site} {rows.format(site=site)}")
        self.call("fedcal study seal sepsis.toml *.join")
        for site in self.sites:
            self.call(f"fedcal site accept sepsis-kits/{site} sepsis.sealed --yes")
        self.serve()
        self.start_all()

    def record(self, name: str, file: str = "study.json") -> dict:
        return json.loads((self.folder / name / file).read_text())

    def spent(self, site: str) -> list[dict]:
        """Epsilon, rounds that were answered, and state of a site's jobs."""
        with records_in(self.folder / f"sepsis-kits/{site}/state") as records:
            of, rounds = records.booked(), "SELECT round FROM answers WHERE job = ? ORDER BY round"
            known = [records.rows(rounds, (job.job,)) for job in of]
            return [
                {"epsilon": j.epsilon, "answered": tuple(n for (n,) in own), "closed": j.closed}
                for j, own in zip(of, known, strict=True)
            ]

    def charged(self) -> list[tuple[int, ...]]:
        with Ledger(self.folder / "sepsis-server" / "ledger-1.sqlite") as book:
            return [entry.charged for entry in book.entries()]
