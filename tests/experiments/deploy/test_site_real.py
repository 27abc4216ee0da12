"""Real sites under a real SuperLink: TLS, node authentication, processes of their own."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from superlink import BIN, SuperLink

from fedcal.classes import digest_of
from fedcal.clients.policy import NO_POLICY
from fedcal.clients.prepared import prepare
from fedcal.experiments.deploy.certificates import make_certificates
from fedcal.experiments.deploy.supernode import SuperNode, supernode
from fedcal.shards import Shards

pytestmark = pytest.mark.slow

APP = """
[project]
name = "probe"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "test"

[tool.flwr.app.components]
serverapp = "probe:app"
clientapp = "hostile:app"

[tool.flwr.app.config]
out = "{out}"
"""

PROBE = """
import json, time
from flwr.app import Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()

@app.main()
def main(grid, context):
    while len(nodes := list(grid.get_node_ids())) < 2:
        time.sleep(0.2)
    heard = []
    for kind in ("query.who", "query.answer", "query.rows"):
        asked = [Message(RecordDict(), node, kind) for node in nodes]
        began = time.monotonic()
        for reply in grid.send_and_receive(asked, timeout=60):
            said = None if reply.has_error() else dict(reply.content.config_records["who"])
            error = reply.error.reason if reply.has_error() else None
            heard.append({"kind": kind, "said": said, "error": error})
        heard[-1]["seconds"] = time.monotonic() - began
    open(context.run_config["out"], "w").write(json.dumps(heard))
"""

HOSTILE = """
import pathlib
pathlib.Path(r"{trace}").touch()
from flwr.clientapp import ClientApp
app = ClientApp()
"""


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SuperLink]:
    link = SuperLink(tmp_path_factory.mktemp("superlink"), ["a", "b", "c"])
    here = link.folder / "server"  # what is installed there, and is in no bundle
    here.mkdir()
    (here / "probe.py").write_text(PROBE, "utf-8")
    (here / "hostile.py").write_text(HOSTILE.format(trace=here / "trace"), "utf-8")
    link.env["PYTHONPATH"] = str(here)
    with link.running():
        link.register("a", "b")
        yield link


def rows(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.Generator(np.random.Philox(key=n))
    return rng.normal(size=(n, 2)), rng.integers(2, size=n)


def left_of(folder: Path) -> list[str]:
    """Processes with this site's folder in their environment, and homes of Flower's in it."""
    found = [path.name for path in folder.glob("flower-*")]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"FEDCAL_SITE={folder.resolve()}".encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def wait_for(site: subprocess.Popen[str] | SuperNode, log: Path, what: str) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and site.poll() is None:
        if log.exists() and what in (text := log.read_text("utf-8")):
            return text
        time.sleep(0.1)
    raise AssertionError(f"{what!r} did not come")


def start_site(
    link: SuperLink, folder: Path, key: str, root: Path | None = None
) -> subprocess.Popen[str]:
    logits, labels = rows(877)
    np.savez(folder / "rows.npz", logits=logits, labels=labels)
    words = [
        *(str(BIN / "fedcal"), "site", "--data", "rows.npz", "--class-names", "well,sick"),
        *("--fleet", link.fleet, "--root-certificates", str(root or link.root)),
        *("--key", str(link.key(key)), "--state", "state"),
        *("--key-records", "key.records"),  # a test's own: a key has one folder for ever
    ]
    said = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(words, cwd=folder, text=True, **said)


def test_two_sites_answer_and_run_nothing_that_the_server_names(link, tmp_path):
    app, out = tmp_path / "app", tmp_path / "heard.json"
    app.mkdir()
    (app / "pyproject.toml").write_text(APP.format(out=out), "utf-8")
    logits, labels = rows(1234)
    prepare(tmp_path / "a", Shards(logits, labels, np.array([0, 1234])), number=5)
    started = start_site(link, tmp_path, "b")
    try:
        files = {"root_certificates": link.root, "key": link.key("a")}
        with supernode(tmp_path / "a", fleet=link.fleet, **files) as node:
            wait_for(node, tmp_path / "a" / "flower.log", "SuperNode ID")
            wait_for(started, tmp_path / "state" / "site.log", "connected to")
            shown = link.run(app)
            assert out.exists(), shown
        assert left_of(tmp_path / "a") == []
    finally:
        started.send_signal(signal.SIGINT)
        said, _ = started.communicate(timeout=30)
    heard = json.loads(out.read_text("utf-8"))
    who = [h["said"] for h in heard if h["kind"] == "query.who"]
    assert {w["names"] for w in who} == {digest_of(["0", "1"]), digest_of(["well", "sick"])}
    assert [w["site"] for w in who if "site" in w] == [5]
    errors = [h["error"] for h in heard if h["kind"] == "query.answer"]
    assert len(errors) == 2
    assert all("KeyError; the site's own log says more" in error for error in errors)
    assert sum(h["kind"] == "query.rows" and h["said"] is None for h in heard) == 2
    assert not (link.folder / "server" / "trace").exists()
    assert max(h.get("seconds", 0) for h in heard) < 15  # Flower's polls, not ours
    flower = (tmp_path / "state" / "flower.log").read_text("utf-8")
    took = [float(t) for t in re.findall(r"fedcal: a message took ([\d.]+) s", flower)]
    assert len(took) == 3
    assert max(took) < 1
    # what the site's own people see
    assert started.returncode == 130
    first, *lines = said.splitlines()
    assert first == "rows.npz: 2 classes (well, sick), logits"  # no counts but on a terminal
    words = [re.sub(r"^[\d-]+ [\d:]+ ", "", line) for line in lines]
    assert words[0] == NO_POLICY
    assert words[1] == f"connected to {link.fleet}: waiting for questions"
    assert words[2].startswith("asked which classes it has: answered with their digest")
    assert words[3].startswith("refused to answer: KeyError in ")
    assert words[-1] == "fedcal: interrupted: the site is stopped; the same command starts it again"
    for log in ("site.log", "flower.log"):
        assert not re.search(r"\b877\b", (tmp_path / "state" / log).read_text("utf-8"))
    assert left_of(tmp_path / "state") == []


def test_why_a_site_cannot_connect_is_one_line(link, tmp_path):
    def ended(key: str, root: Path | None = None) -> str:
        site = start_site(link, tmp_path, key, root)
        said, _ = site.communicate(timeout=60)
        assert site.returncode == 1
        return str(said.splitlines()[-1])

    error, public = ended("c"), link.key("c").with_suffix(".pub").read_text().split()
    assert error.startswith(f"fedcal: error: the SuperLink at {link.fleet} does not know this site")
    assert error.endswith(f"to register: {public[0]} {public[1]}")
    make_certificates(tmp_path / "other", names=["127.0.0.1"], sites=[])
    (tmp_path / "key.records").unlink(missing_ok=True)
    other = tmp_path / "other" / "ca.crt"
    assert "was not signed by --root-certificates" in ended("a", other)


def test_sigterm_ends_all_and_a_kill_leaves_nothing(link, tmp_path):
    state = tmp_path / "state"
    for number, code in ((signal.SIGTERM, 0), (signal.SIGKILL, -9)):
        site = start_site(link, tmp_path, "a")
        wait_for(site, state / "site.log", "connected to")
        assert len(left_of(state)) >= 4
        (state / "site.log").unlink()
        os.kill(site.pid, number)
        site.communicate(timeout=30)
        assert site.returncode == code
        deadline = time.monotonic() + 15
        while left_of(state) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert left_of(state) == []
