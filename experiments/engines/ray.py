"""Flower's simulation engine: real messages between a ServerApp and ClientApps in Ray actors.

Everything happens in child processes that end with the run: a SuperLink of its own on a free
port of the loopback interface, with its own FLWR_HOME, and `flwr run` against it. What Flower
ships to them is a folder that holds nothing but a `pyproject.toml`: the code is what is
installed, and the sites find their rows by name or path (`fedcal.clients.site`).
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import socket
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import tomli_w

import fedcal
from fedcal.clients.site import write_dealt
from fedcal.errors import FedcalError, InputError, RoundFailed
from fedcal.experiments.engines.processes import ProcessTree, usable_cores
from fedcal.experiments.flower_app import FILE, app_toml
from fedcal.partition import DEALT
from fedcal.shards import Shards
from fedcal.strategies.job import Job
from fedcal.strategies.outcome import Outcome, Progress
from fedcal.strategies.server_app import read_error, read_progress

MARK = "FEDCAL_RUN"
"""Environment variable that every process of a run carries: its folder."""

COMPLETED = "finished:completed"
_STARTS = 3  # another process may take the free port first
_SUPERLINK_SECONDS = 60.0
_CLUSTER_SECONDS = 4.0
_TICK = 0.05
_LONGEST_BASE = 32  # Ray's sockets lie 75 characters deeper; a socket's path may have 107
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class NamedData(NamedTuple):
    """Where sites find their rows by themselves: as `fedcal.clients.site.site_rows` takes it."""

    data: str
    partition: str


def run_ray(
    job: Job,
    shards: Shards,
    *,
    source: NamedData | None = None,
    ray_address: str | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Run a job over simulated clients in Flower's simulation engine.

    Parameters
    ----------
    job
        what the server runs
    shards
        one shard for each client
    source
        where every process finds the same shards by itself; None = in a file that is
        written for the run, which only processes of this machine can read
    ray_address
        HOST:PORT of the head (GCS) of a Ray cluster. This machine must be one of its
        nodes; fedcal, Flower and the data must be there, under the same path, on all of them.
        (For a cluster on the loopback alone, started with RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0,
        that variable must be set here, too.) None = a Ray of its own on this machine
    progress
        called after each round

    Returns
    -------
    Outcome
        Same bits as from `run_inline`. `seconds` are those of the rounds in the server; the
        start of Flower and Ray, 10 to 20 s, is not in them.

    Raises
    ------
    InputError
        If Ray or Flower's commands are missing, or as `Job.run`; nothing was released.
    RoundFailed
        If a client failed, or nobody of those asked answered.
    FedcalError
        If Flower or Ray failed, or there is no cluster at `ray_address`.
    """
    commands = _commands()
    if ray_address is not None:
        check_cluster(ray_address)
    with _folder() as folder:
        if source is None:
            source = NamedData(str(folder / "rows.npz"), DEALT)
            write_dealt(Path(source.data), shards)
        out = folder / "out"
        out.mkdir()
        fields = {
            **job.to_fields(),
            "data": source.data,
            "partition": source.partition,
            "out": str(out),
            "resume": False,
            "deliver": False,
        }
        run = _Run(folder, commands, ray_address)
        run.write_app(fields)
        with run.superlink():
            status = run.flwr_run(job.federation.clients, out, progress)
        if isinstance(error := read_error(out), RoundFailed):
            raise RoundFailed(f"{error}; the run's log is {run.keep_log()}")
        if error is not None:
            raise error
        if status != COMPLETED:
            # With privacy a client's own words, which may tell of rows, stay in the log.
            run.fail(f"Flower's simulation ended as '{status}'", tell=not job.plan.private)
        return Outcome.load(out)


class _Commands(NamedTuple):
    superlink: Path
    flwr: Path


def _commands() -> _Commands:
    """Flower's commands, those of this very interpreter; InputError if something is missing."""
    if os.name != "posix":
        raise InputError("engine 'ray' needs Linux or macOS; use --engine inline")
    if importlib.util.find_spec("ray") is None:
        raise InputError("engine 'ray' needs Ray: pip install 'fedcal[simulation]'")
    for folder in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        found = _Commands(folder / "flower-superlink", folder / "flwr")
        if all(os.access(command, os.X_OK) for command in found):
            return found
    raise InputError(
        f"engine 'ray' needs the commands flower-superlink and flwr beside {sys.executable}: "
        "install flwr into the same environment"
    )


def check_cluster(address: str) -> None:
    """Refuse an address at which no cluster's head can be.

    Parameters
    ----------
    address
        HOST:PORT

    Raises
    ------
    InputError
        If it is no such address.
    FedcalError
        If nobody answers there.
    """
    host, _, port = address.rpartition(":")
    if not host or "/" in address or not port.isdigit() or not 0 < int(port) < 65536:
        raise InputError(
            f"ray_address must be HOST:PORT of a cluster's head, such as 127.0.0.1:6379, "
            f"got {address!r}"
        )
    import grpc  # type: ignore[import-untyped]

    # Ray itself would wait for minutes, and for ever where something else listens.
    with grpc.insecure_channel(address, [("grpc.enable_http_proxy", 0)]) as channel:
        try:
            grpc.channel_ready_future(channel).result(_CLUSTER_SECONDS)
        except grpc.FutureTimeoutError:
            raise FedcalError(f"no Ray cluster answers at {address}") from None


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A private folder for everything that the run writes, gone at its end."""
    base = tempfile.gettempdir()
    short = base if len(base) <= _LONGEST_BASE else "/tmp"
    with tempfile.TemporaryDirectory("", "fedcal-", short, ignore_cleanup_errors=True) as folder:
        yield Path(folder).resolve()


class _Run:
    """Flower's processes for one run, in one folder."""

    def __init__(self, folder: Path, commands: _Commands, ray_address: str | None) -> None:
        self._folder, self._commands, self._ray_address = folder, commands, ray_address
        self._home, self._app = folder / "home", folder / "app"
        self._log = folder / "log"
        env = _environment(folder, self._home, commands, ray_address)
        self._started = partial(ProcessTree, folder=folder, env=env, log=self._log)
        self._tree: ProcessTree | None = None

    def write_app(self, fields: Mapping[str, Any]) -> None:
        """The folder that Flower bundles: no code, every key of the run config declared."""
        self._app.mkdir()
        (self._app / FILE).write_text(app_toml(fields), "utf-8")

    @contextlib.contextmanager
    def superlink(self) -> Iterator[None]:
        """A SuperLink that listens; ended, with Ray and all, when the block is left."""
        self._home.mkdir()
        for left in reversed(range(_STARTS)):
            port = _free_port()
            command: list[str | Path] = [
                *(self._commands.superlink, "--insecure", "--simulation"),
                *("--host", "127.0.0.1", "--port", str(port)),
                "--disable-runtime-dependency-installation",
            ]
            with self._started(command) as self._tree:
                if not self._listens(port):
                    if not left:
                        self.fail("Flower's SuperLink did not start", tell=True)
                    continue
                connection = {"address": f"127.0.0.1:{port}", "insecure": True}
                config = tomli_w.dumps({"superlink": {"fedcal": connection}})
                (self._home / "config.toml").write_text(config, "utf-8")
                yield
                return

    def flwr_run(self, clients: int, out: Path, progress: Progress | None) -> str:
        """Run the app to its end; the status that Flower gives it."""
        federation = f"num-supernodes={clients} client-resources-num-cpus=1"
        if self._ray_address is None:  # a cluster has the cores that it has
            federation += f" init-args-num-cpus={min(clients, usable_cores())}"
        command: list[str | Path] = [
            *(self._commands.flwr, "run", str(self._app), "fedcal", "--stream"),
            *("--federation-config", federation),
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
                time.sleep(_TICK if going else 0)
        return "the SuperLink is gone" if not self._alive() else self._status()

    def keep_log(self) -> str:
        """Copy the log to where it stays, readable to this user only; that path."""
        with tempfile.NamedTemporaryFile(prefix="fedcal-", suffix=".log", delete=False) as kept:
            kept.write(self._log.read_bytes())
        return kept.name

    def fail(self, what: str, *, tell: bool) -> NoReturn:
        """Raise FedcalError; the log is kept, and its first error is in the message if `tell`."""
        why = f": {self._first_error()}" if tell else ""
        raise FedcalError(f"{what}{why}; the run's log is {self.keep_log()}")

    def _first_error(self) -> str:
        """The first line of the log that tells of an error, or its last one."""
        text = _COLOURS.sub("", self._log.read_text("utf-8", "replace"))
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        told = [line.partition("ERROR")[2].strip(" :") for line in lines if "ERROR" in line]
        told = [line for line in told if line and not line.startswith("Traceback")]
        return (told or lines[-1:] or ["its log is empty"])[0][:300]

    def _alive(self) -> bool:
        return self._tree is not None and self._tree.poll() is None

    def _listens(self, port: int) -> bool:
        """Wait until the SuperLink answers; False if it ended or took too long."""
        deadline = time.monotonic() + _SUPERLINK_SECONDS
        while self._alive() and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1.0).close()
                return self._alive()
            time.sleep(_TICK)
        return False

    def _status(self) -> str:
        """What `flwr list` says of the only run: `flwr run` itself exits 0 if it failed."""
        listed = self._folder / "list.json"
        command = [str(self._commands.flwr), "list", "fedcal", "--format", "json"]
        with self._started(command, log=listed) as asking:
            while asking.poll() is None:
                time.sleep(_TICK)
        text = listed.read_text("utf-8", "replace")
        with contextlib.suppress(ValueError, LookupError, TypeError):
            return str(json.loads(text[text.index("{") :])["runs"][0]["status"])
        return "unknown"


def _environment(
    folder: Path, home: Path, commands: _Commands, ray_address: str | None
) -> dict[str, str]:
    """This process's environment with what a quiet, private run on the loopback needs."""
    env = dict(os.environ)
    # Relative entries mean something else in another folder. The running fedcal comes first
    # where it is not installed, so that a foreign `clients` is never found instead.
    search = [os.path.abspath(p) for p in env.get("PYTHONPATH", "").split(os.pathsep) if p]
    own = str(Path(fedcal.__file__).resolve().parents[1])
    if own not in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        search.insert(0, own)
    local = ",".join(filter(None, (env.get("NO_PROXY") or env.get("no_proxy"), "127.0.0.1")))
    own_ray = {
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on Linux too: loopback only
        "RAY_TMPDIR": str(folder),
    }
    cluster = {"RAY_NUM_REDIS_GET_RETRIES": "1"}  # a head that is gone: fail after half a minute
    return {
        **env,
        MARK: str(folder),
        "PATH": os.pathsep.join([str(commands.flwr.parent), env.get("PATH", os.defpath)]),
        "PYTHONPATH": os.pathsep.join(search),
        "NO_PROXY": local,
        "no_proxy": local,
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ADDRESS": ray_address or "local",  # no cluster that happens to run on this machine
        **(own_ray if ray_address is None else cluster),
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
