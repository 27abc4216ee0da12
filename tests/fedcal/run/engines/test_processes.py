"""A command and everything it starts: nothing of it outlives `end`, nor this process."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from procfs import processes, until

import fedcal
import fedcal.run.engines.ray as engine
from fedcal.run.engines import superlink
from fedcal.run.engines.processes import ProcessTree
from fedcal.run.engines.superlink import FlowerRun

ROOT = Path(fedcal.__file__).resolve().parents[1]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, adopts orphans")

DAEMON = """
import os, sys, time
def spawn(name, stubborn=False):
    if os.fork() == 0:
        os.setsid()                    # another session ...
        if os.fork() == 0:             # ... and an orphan at once
            if stubborn:
                import signal
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            with open(name + ".part", "w") as f:
                f.write(str(os.getpid()))
            os.rename(name + ".part", name)
            time.sleep(600)
        os._exit(0)
for name in ("../daemon", "../other"):
    spawn(name, stubborn="stubborn" in sys.argv and "other" in name)
    while not os.path.exists(name):
        time.sleep(0.02)
print("said", os.environ["GREETING"], os.getcwd(), flush=True)
if sys.argv[1] != "stay":
    sys.exit(int(sys.argv[1]))
time.sleep(600)
"""

PARENT = """
import os, sys, time
from pathlib import Path
import fedcal
import fedcal.run.engines.ray as engine
from fedcal.run.engines import superlink
from fedcal.run.engines.processes import ProcessTree
folder = Path(sys.argv[1])
tree = ProcessTree([sys.executable, "-c", sys.argv[2], "stay"], folder=folder,
                   env={**os.environ, "GREETING": "x"}, log=folder.parent / "log")
print("started", flush=True)
time.sleep(600)
"""


def runs(process: int) -> bool:
    return process in processes()


def daemons(folder: Path) -> list[int]:
    files = [folder.parent / "daemon", folder.parent / "other"]
    assert until(lambda: all(f.exists() for f in files))
    found = [int(f.read_text()) for f in files]
    assert all(map(runs, found))
    return found


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "folder").mkdir()
    yield tmp_path / "folder"
    for name in ("daemon", "other"):  # if a test fails, leave nothing
        file = tmp_path / name
        if file.exists() and runs(int(file.read_text())):
            os.kill(int(file.read_text()), signal.SIGKILL)


def start(folder: Path, *how: str) -> ProcessTree:
    command = [sys.executable, "-c", DAEMON, *how]
    env = {**os.environ, "GREETING": "hello"}
    return ProcessTree(command, folder=folder, env=env, log=folder.parent / "log")


def test_daemons_end_when_the_command_ends(folder):
    with start(folder, "7") as tree:
        assert until(lambda: tree.poll() is not None)
        assert tree.poll() == 7
    found = [int((folder.parent / name).read_text()) for name in ("daemon", "other")]
    assert not any(map(runs, found))
    assert (folder.parent / "log").read_text() == f"said hello {folder}\n"


def test_end_ends_daemons_and_those_that_do_not_listen(folder):
    tree = start(folder, "stay", "stubborn")
    found = daemons(folder)
    tree.end()
    assert not any(map(runs, found))
    assert tree.poll() == 128 + signal.SIGTERM
    tree.end()
    assert folder.exists()


def test_nothing_outlives_a_killed_parent(folder):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(folder), DAEMON], stdout=subprocess.PIPE, text=True
    )
    with parent:
        found = daemons(folder)
        parent.kill()
        parent.wait()
    assert until(lambda: not any(map(runs, found)))
    assert until(lambda: not folder.exists())  # nobody else will remove it


def test_a_superlink_is_waited_for_until_it_listens(folder):
    program = folder.parent / "flower-superlink"
    program.write_text(f"#!/bin/sh\nsleep 0.1\nexec {sys.executable} -m http.server -b $2 $4\n")
    program.chmod(0o700)
    with FlowerRun(folder, folder.parent, {}).superlink(list) as address:
        host, _, port = address.partition(":")
        socket.create_connection((host, int(port)), 1.0).close()


def environment(tmp_path: Path) -> dict[str, str]:
    own = superlink.quiet_environment(tmp_path / "home")
    return own | engine.ray_environment(tmp_path)


def test_nothing_of_the_user_s_environment_leads_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    for name, value in {
        "PYTHONPATH": f"here{os.pathsep}{os.pathsep}/there",
        "RAY_ADDRESS": "192.0.2.1:6379",
        "FLWR_HOME": "/home/user/.flwr",
        "NO_PROXY": "intern.example",
        "PATH": "/usr/bin",
        "KEPT": "as it is",
    }.items():
        monkeypatch.setenv(name, value)
    env = environment(tmp_path)
    assert env["PYTHONPATH"].split(os.pathsep) == [str(ROOT), str(tmp_path / "here"), "/there"]
    assert (env["RAY_ADDRESS"], env["RAY_TMPDIR"]) == ("local", str(tmp_path))
    assert env["FLWR_HOME"] == str(tmp_path / "home")
    assert env["NO_PROXY"] == env["no_proxy"] == "intern.example,127.0.0.1"
    assert env["KEPT"] == "as it is"
    monkeypatch.delenv("PYTHONPATH")
    monkeypatch.setattr(superlink.sysconfig, "get_path", lambda name: str(ROOT))
    assert environment(tmp_path)["PYTHONPATH"] == ""  # an installed fedcal is found without help
