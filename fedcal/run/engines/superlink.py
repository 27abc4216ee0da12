"""Flower's processes for one run: its commands, their environment, a SuperLink, and `flwr`.

Everything happens in child processes that end with the run, in one private folder with its own
FLWR_HOME. What Flower ships to them is a folder that holds nothing but a `pyproject.toml`: the
code is what is installed.
"""

import contextlib
import json
import os
import re
import socket
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import tomli_w

import fedcal
from fedcal.core.checks import FedcalError, InputError, RoundFailed
from fedcal.run.engines.flower_app import FILE, app_toml
from fedcal.run.engines.processes import ProcessTree
from fedcal.strategies import STRATEGIES
from fedcal.strategies.server.checkpoint import read_error, read_progress
from fedcal.strategies.server.outcome import Outcome, Progress

MARK = "FEDCAL_RUN"
"""Environment variable that every process of a run carries: its folder."""

COMPLETED = "finished:completed"
CONNECTION = "fedcal"
"""Name of the SuperLink in the configuration of `flwr`."""

UNKNOWN = "unknown"
"""Status of a run that the SuperLink does not know, or that nobody tells of."""

COMMAND_S = 120.0
"""Seconds that a command of `flwr` may take: it waits without an end for a SuperLink that hangs."""

TICK = 0.05
_STARTS = 3  # another process may take the free port first
_SUPERLINK_SECONDS = 60.0
_LONGEST_BASE = 32  # Ray's sockets lie 75 characters deeper; a socket's path may have 107
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_MANY = """\
import json, sys
from fedcal.core.flower_internals import flwr_command
for arguments in json.loads(sys.argv[1]):
    flwr_command(arguments, standalone_mode=False)
"""
"""Several commands of `flwr` in one process: each start of it takes seconds."""


_given_ports: set[int] = set()


def commands(engine: str) -> Path:
    """Return the folder of Flower's commands, those of this very interpreter."""
    return scripts(f"engine '{engine}'", "superlink", "flwr")


def scripts(feature: str, *names: str) -> Path:
    """Return the folder with these of Flower's commands, in the running environment.

    Raises InputError, naming the feature, if they are missing or the system is not supported.
    """
    if not hasattr(os, "fork"):
        raise InputError(f"{feature} needs Linux or macOS")
    needed = [name if name == "flwr" else f"flower-{name}" for name in names]
    for folder in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        if all(os.access(folder / name, os.X_OK) for name in needed):
            return folder
    raise InputError(
        f"{feature} needs the commands {' and '.join(needed)} beside {sys.executable}: install "
        "flwr into the same environment"
    )


@contextlib.contextmanager
def run_folder() -> Iterator[Path]:
    """Make a private folder for everything that a run writes; it is deleted at the end."""
    base = tempfile.gettempdir()
    short = base if len(base) <= _LONGEST_BASE else "/tmp"
    with tempfile.TemporaryDirectory("", "fedcal-", short, ignore_cleanup_errors=True) as folder:
        yield Path(folder).resolve()


def free_port() -> int:
    """Return an unused port of the loopback interface that this process has not handed out."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port not in _given_ports:
            _given_ports.add(port)
            return port


class FlowerRun:
    """Flower's processes for one run, in one folder.

    Parameters
    ----------
    folder
        private
    found
        Flower's commands
    extra
        further environment variables
    """

    def __init__(self, folder: Path, programs: Path, extra: Mapping[str, str]) -> None:
        self._folder, self._commands = folder, programs
        self._home, self._app = folder / "home", folder / "app"
        self._log = folder / "log"
        self._log.touch()
        self._home.mkdir()
        path = os.pathsep.join([str(programs), os.environ.get("PATH", os.defpath)])
        env = {**quiet_environment(self._home), MARK: str(folder), "PATH": path, **extra}
        self._started = partial(ProcessTree, folder=folder, env=env, log=self._log)
        self._tree: ProcessTree | None = None

    def write_app(self, fields: Mapping[str, Any]) -> None:
        """Write the folder that Flower bundles: no code, every key of the run config declared."""
        self._app.mkdir()
        (self._app / FILE).write_text(app_toml(fields), "utf-8")

    def connect(self, address: str, root_certificates: Path | None) -> None:
        """Set where `flwr` finds the SuperLink's control API; without certificates TLS is off."""
        known: dict[str, Any] = {"address": address, "insecure": True}
        if root_certificates is not None:
            known = {"address": address, "root-certificates": str(root_certificates.resolve())}
        text = tomli_w.dumps({"superlink": {CONNECTION: known}})
        (self._home / "config.toml").write_text(text, "utf-8")

    @contextlib.contextmanager
    def superlink(
        self, options: Callable[[], Sequence[str | Path]], root_certificates: Path | None = None
    ) -> Iterator[str]:
        """Run a SuperLink on loopback (yield its address); its processes end after the block.

        Parameters
        ----------
        options
            further ones, made anew for each start: ports may be taken by then
        root_certificates
            of its control API; None = without TLS
        """
        for left in reversed(range(_STARTS)):
            port = free_port()
            command: list[str | Path] = [
                *(self._commands / "flower-superlink", *options()),
                *("--host", "127.0.0.1", "--port", str(port)),
                "--disable-runtime-dependency-installation",
            ]
            with self._started(command) as self._tree:
                if not self._listens(port):
                    if not left:
                        self.fail("Flower's SuperLink did not start", tell=True)
                    continue
                self.connect(address := f"127.0.0.1:{port}", root_certificates)
                yield address
                return

    def flwr(self, *arguments: str | Path) -> str:
        """Return what a `flwr` command prints, or why it failed; it is ended in `COMMAND_S`."""
        return self._output_of([self._commands / "flwr", *arguments], COMMAND_S)

    def flwr_many(self, many: Sequence[Sequence[str]]) -> str:
        """Return the output of several `flwr` commands, run in one process until one fails."""
        command: list[str | Path] = [sys.executable, "-P", "-c", _MANY, json.dumps(many)]
        return self._output_of(command, COMMAND_S * len(many))

    def run(self, federation: str | None, out: Path, progress: Progress | None) -> str:
        """Run the app to its end; the status that Flower gives it."""
        command: list[str | Path] = [
            *(self._commands / "flwr", "run", str(self._app), CONNECTION, "--stream"),
            *(() if federation is None else ("--federation-config", federation)),
        ]
        seen = 0
        with self._started(command) as run:
            going = True
            while going:
                going = run.poll() is None and self._alive()
                done = read_progress(out)
                for pair in done[seen:]:
                    if progress is not None:
                        progress(*pair)
                seen = len(done)
                time.sleep(TICK if going else 0)
        return "the SuperLink is gone" if not self._alive() else self.status()

    def submit(self) -> int:
        """Start the app on the SuperLink, and do not wait; Flower's number of the run.

        Raises FedcalError if Flower does not take it, with what it says.
        """
        printed = self.flwr("run", str(self._app), CONNECTION, "--format", "json")
        answer = json_in(printed)
        if not answer.get("success"):
            raise FedcalError(f"the SuperLink did not take the run: {complaint(printed)}")
        return int(answer["run-id"])

    def status(self, run_id: int | None = None) -> str:
        """Return Flower's status of a run, by default the only one.

        `flwr run` exits 0 also if the run failed. `UNKNOWN` if the SuperLink does not answer.
        """
        which = () if run_id is None else ("--run-id", str(run_id))
        listed = json_in(self.flwr("list", CONNECTION, *which, "--format", "json"))
        with contextlib.suppress(LookupError, TypeError):
            return str(listed["runs"][0]["status"])
        return UNKNOWN

    def outcome(self, out: Path, status: str, what: str, *, private: bool) -> Outcome:
        """Return the outcome that the server left in `out`; raises the error that stopped the run.

        Parameters
        ----------
        out
            the folder of the run
        status
            what Flower says of it
        what
            ended, in a message
        private
            a client's own words, which may tell of rows, stay in the log

        Raises
        ------
        FedcalError
            Of fedcal's own, as the server raised it; or if Flower failed.
        """
        if isinstance(error := read_error(out), RoundFailed):
            raise RoundFailed(f"{error}; the run's log is {self.keep_log()}")
        if error is not None:
            raise error
        if status != COMPLETED:
            self.fail(f"{what} ended as '{status}'", tell=not private)
        return Outcome.load(out)

    def keep_log(self) -> str:
        """Copy the log to where it stays, readable to this user only; that path."""
        with tempfile.NamedTemporaryFile(prefix="fedcal-", suffix=".log", delete=False) as copy:
            copy.write(self._log.read_bytes())
        return copy.name

    def fail(self, what: str, *, tell: bool) -> NoReturn:
        """Raise FedcalError; the log is kept, and its first error is in the message if `tell`."""
        why = f": {complaint(self._log.read_text('utf-8', 'replace'))}" if tell else ""
        raise FedcalError(f"{what}{why}; the run's log is {self.keep_log()}")

    def _output_of(self, command: list[str | Path], seconds: float) -> str:
        output, deadline = self._folder / "said", time.monotonic() + seconds
        output.unlink(missing_ok=True)
        with self._started(command, log=output) as asking:
            while (silent := asking.poll() is None) and time.monotonic() < deadline:
                time.sleep(TICK)
        text = _COLOURS.sub("", output.read_text("utf-8", "replace"))
        return f"{text}\nERROR: no answer within {seconds:g} s" if silent else text

    def _alive(self) -> bool:
        return self._tree is not None and self._tree.poll() is None

    def _listens(self, port: int) -> bool:
        """Wait until the SuperLink answers; False if it ended or took too long."""
        deadline = time.monotonic() + _SUPERLINK_SECONDS
        while self._alive() and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1.0).close()
                return self._alive()
            time.sleep(TICK)
        return False


def json_in(text: str) -> dict[str, Any]:
    """Return the JSON object that a command of `flwr` printed, or {} if it printed none."""
    with contextlib.suppress(ValueError):
        value = json.loads(text[text.index("{") : text.rindex("}") + 1])
        return value if isinstance(value, dict) else {}
    return {}


def complaint(text: str) -> str:
    """Return the error in JSON output; else the first line that reports one, or the last line."""
    if reason := str(json_in(text).get("error-message", "")).strip():
        return reason.splitlines()[-1].strip()[:300]
    # a line in brackets is SQLAlchemy's, with the address of a page
    lines = [s.strip() for s in _COLOURS.sub("", text).splitlines() if s.strip() and s[0] != "("]
    errors = [line.partition("ERROR")[2].strip(" :") for line in lines if "ERROR" in line]
    errors = [line for line in errors if line and not line.startswith("Traceback")]
    return (errors or lines[-1:] or ["its log is empty"])[0][:300]


def _folder(module: str) -> str:
    """Return the folder in which a method's module was found; "" = in none."""
    known = sys.modules.get(module)
    depth = module.count(".") + hasattr(known, "__path__")
    file = getattr(known, "__file__", None)
    return str(Path(file).resolve().parents[depth]) if file else ""


def health_options() -> list[str]:
    """Return the option for Flower's health server: `FEDCAL_HEALTH`, where set, is HOST:PORT."""
    address = os.environ.get("FEDCAL_HEALTH")
    return ["--health-server-address", address] if address else []


def quiet_environment(home: Path) -> dict[str, str]:
    """Return the environment for a Flower that is confined to `home` and the loopback."""
    env = dict(os.environ)
    # Relative entries mean something else in another folder. The running fedcal comes first
    # where it is not installed, so that a foreign `clients` is never found instead.
    search = [os.path.abspath(p) for p in env.get("PYTHONPATH", "").split(os.pathsep) if p]
    own = str(Path(fedcal.__file__).resolve().parents[1])
    mine = [_folder(name.partition(":")[0]) for name in STRATEGIES if ":" in name]
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), ""}
    search = [f for f in dict.fromkeys([own, *search, *mine]) if f not in installed]
    local = ",".join(filter(None, (env.get("NO_PROXY") or env.get("no_proxy"), "127.0.0.1")))
    return {
        **env,
        "PYTHONPATH": os.pathsep.join(search),
        "NO_PROXY": local,
        "no_proxy": local,
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    }
