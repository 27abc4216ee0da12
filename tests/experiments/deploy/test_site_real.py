"""Real sites under a real SuperLink: TLS, node authentication, processes of their own."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from superlink import BIN, SuperLink

from fedcal.clients.site.policy import NO_POLICY
from fedcal.experiments.deploy.certificates import make_certificates

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def link(tmp_path_factory):
    link = SuperLink(tmp_path_factory.mktemp("superlink"), ["a", "b", "c"])
    with link.running():
        link.register("a", "b")
        yield link


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


def wait_for(site: subprocess.Popen[str], log: Path, what: str) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and site.poll() is None:
        if log.exists() and what in (text := log.read_text("utf-8")):
            return text
        time.sleep(0.1)
    raise AssertionError(f"{what!r} did not come")


def start_site(
    link: SuperLink, folder: Path, key: str, root: Path | None = None
) -> subprocess.Popen[str]:
    rng = np.random.default_rng(877)
    logits, labels = rng.normal(size=(877, 2)), rng.integers(2, size=877)
    np.savez(folder / "rows.npz", logits=logits, labels=labels)
    words = [
        *(str(BIN / "fedcal"), "site", "--data", "rows.npz", "--class-names", "well,sick"),
        *("--fleet", link.fleet, "--root-certificates", str(root or link.root)),
        *("--key", str(link.key(key)), "--state", "state"),
        *("--key-records", "key.records"),  # a test's own: a key has one folder for ever
    ]
    said = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(words, cwd=folder, text=True, **said)


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
        said, _ = site.communicate(timeout=30)
        assert site.returncode == code
        if code == 0:
            first, *lines = [re.sub(r"^[\d-]+ [\d:]+ ", "", line) for line in said.splitlines()]
            assert first == "rows.npz: 2 classes (well, sick), logits"  # no counts
            assert lines[:2] == [NO_POLICY, f"connected to {link.fleet}: waiting for questions"]
        deadline = time.monotonic() + 15
        while left_of(state) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert left_of(state) == []
