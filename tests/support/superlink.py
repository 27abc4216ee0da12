"""A real SuperLink for slow tests: TLS and node authentication, on the loopback interface."""

import contextlib
import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import tomli_w

from fedcal.run.engines import superlink
from fedcal.run.engines.processes import ProcessTree
from fedcal.run.engines.ray import ray_environment
from fedcal.run.engines.superlink import free_port as free_port  # also found here
from fedcal.run.engines.tls import make_certificates, make_site_key

BIN = Path(sys.executable).parent
CONNECTION = "test"


class SuperLink:
    """Ports and files of a SuperLink; `running()` starts it, again with the same ports."""

    def __init__(self, folder: Path, sites: list[str]) -> None:
        self.folder, self.home = folder, folder / "home"
        self.home.mkdir()
        self.certificates = folder / "certificates"
        make_certificates(self.certificates, ["127.0.0.1", "localhost"])
        for site in sites:
            make_site_key(self.certificates / "sites", site, site)
        self.control = free_port()
        self.fleet = f"127.0.0.1:{free_port()}"
        self.log = folder / "superlink.log"
        self.root = self.certificates / "ca.crt"
        self.env = {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(self.home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "NO_PROXY": "127.0.0.1",
        }
        known = {"address": f"127.0.0.1:{self.control}", "root-certificates": str(self.root)}
        config = tomli_w.dumps({"superlink": {CONNECTION: known}})
        (self.home / "config.toml").write_text(config, "utf-8")

    def key(self, site: str) -> Path:
        return self.certificates / "sites" / f"{site}.key"

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        files = self.certificates
        command: list[str | Path] = [
            *(BIN / "flower-superlink", "--ssl-ca-certfile", self.root),
            *("--ssl-certfile", files / "server.crt", "--ssl-keyfile", files / "server.key"),
            *("--enable-supernode-auth", "--host", "127.0.0.1", "--port", str(self.control)),
            *("--fleet-api-address", self.fleet, "--disable-runtime-dependency-installation"),
        ]
        run = self.folder / "run"
        run.mkdir(exist_ok=True)
        with ProcessTree(command, folder=run, env=self.env, log=self.log) as tree:
            deadline = time.monotonic() + 60
            for port in (self.control, int(self.fleet.rpartition(":")[2])):
                while time.monotonic() < deadline and tree.poll() is None:
                    with contextlib.suppress(OSError):
                        socket.create_connection(("127.0.0.1", port), 1.0).close()
                        break
                    time.sleep(0.1)
            yield

    def flwr(self, *arguments: str | Path) -> str:
        done = subprocess.run(
            [str(BIN / "flwr"), *map(str, arguments)],
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return done.stdout + done.stderr

    def register(self, *sites: str) -> None:
        for site in sites:
            public = self.key(site).with_suffix(".pub")
            shown = self.flwr("supernode", "register", public, CONNECTION, "--name", site)
            assert "registered successfully" in shown.lower(), shown

    def run(self, app: Path) -> str:
        """Start a run and stream it to its end; what was shown."""
        return self.flwr("run", app, CONNECTION, "--stream")


def shell(line: str, cwd: Path) -> str:
    """Return the output of a line of shell, run in a fresh environment; nothing it starts stays."""
    with superlink.run_folder() as folder:
        found = superlink.commands("flower")
        env = superlink.quiet_environment(folder / "home") | ray_environment(folder)
        env |= {superlink.MARK: str(folder)}
        env["PATH"] = os.pathsep.join([str(found), env["PATH"]])
        del env["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"]  # the line says it, if it must
        env["FLWR_LOCAL_SUPERLINK_HTTP_API_PORT"] = str(superlink.free_port())
        env["FLWR_LOCAL_CONTROL_API_PORT"] = str(superlink.free_port())
        log = folder / "log"
        command = ["sh", "-c", f"cd {shlex.quote(str(cwd))} && {line}"]
        with ProcessTree(command, folder=folder, env=env, log=log) as run:
            while run.poll() is None:
                time.sleep(0.1)
        return log.read_text("utf-8", "replace")
