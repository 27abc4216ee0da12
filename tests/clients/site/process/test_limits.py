"""What takes too long, or too much memory, is stopped and says so; so is a message too large."""

import logging
import subprocess
import sys
import time
from pathlib import Path

import pytest
from loaded import lines, loaded

import fedcal.clients
from fedcal.clients.site import site_log
from fedcal.sites.site import Echo

SPIN = """
import resource, sys, time
from fedcal.clients.site.process import limits
limits.limit_cpu(1)
assert resource.getrlimit(resource.RLIMIT_CORE) == (0, 0)
try:
    while True:
        pass
except limits.OverLimit as e:
    print(e)
end = time.process_time() + 1.5
while time.process_time() < end:  # time to say so: it is stopped once
    pass
print("said")
"""
HUNGRY = """
import numpy as np
from fedcal.clients.site.process.limits import lacks_memory, limit_memory
np.lib.format.open_memmap("rows.npy", mode="w+", shape=(1 << 25,)).flush()
limit_memory(128 << 20)
assert np.load("rows.npy", mmap_mode="r").sum() == 0  # 256 MiB that are mapped do not count
np.ones(1 << 22)
for much in (lambda: np.ones(1 << 26), lambda: [bytes(1000) for _ in range(1 << 20)]):
    try:
        much()
    except Exception as e:
        print(type(e).__mro__[-4].__name__, lacks_memory(e))
"""


def run(code: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.slow
def test_it_is_stopped_once_and_may_say_so():
    began = time.monotonic()
    done = run(SPIN)
    assert (done.stdout, done.returncode) == ("it takes more than 1 CPU seconds\nsaid\n", 0)
    assert time.monotonic() - began < 60


@pytest.mark.skipif(sys.platform != "linux", reason="others do not limit it")
def test_memory_ends_and_mapped_rows_are_not_counted(tmp_path):
    done = run(HUNGRY, tmp_path)
    assert done.stdout.split() == ["MemoryError", "True"] * 2, done.stderr


MOST_LINES, MOST_OF_THE_GUARD = 9_000, 2_500
ELSEWHERE = (
    *("strategies", "evaluation", "conformal", "personal", "training", "calibrators"),
    *("datasets", "partition", "experiments", "accounting"),
)
"""What makes questions, accounts for them and reads what was learned: a site's process never."""


def test_a_site_that_has_answered_has_loaded_little(tmp_path):
    found, heavy = loaded(tmp_path)
    assert not [name for name in found if name.split(".")[1:2] and name.split(".")[1] in ELSEWHERE]
    assert heavy == []
    asked = {name for name in found if name.startswith("fedcal.clients.questions.")}
    assert asked == {"fedcal.clients.questions.scores"}  # of its kind alone
    assert sum(map(lines, found.values())) <= MOST_LINES


def test_the_guard_is_short():
    """With its docstrings."""
    files = (Path(fedcal.clients.__path__[0]) / "site").rglob("*.py")
    assert sum(map(lines, files)) <= MOST_OF_THE_GUARD


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setattr(site_log, "MOST_BYTES", 1000)
    log = site_log.log
    before = (log.handlers[:], log.level, log.propagate, logging.getLogger("flwr").filters[:])
    for _ in range(2):  # as two processes would
        site_log.log_to(tmp_path / "site.log")
    yield tmp_path / "site.log"
    for handler in set(log.handlers) - set(before[0]):
        handler.close()
    log.handlers, log.level, log.propagate = before[:3]
    logging.getLogger("flwr").filters = before[3]


def test_it_is_put_aside_when_it_is_full(path, capsys):
    path.write_text("of an earlier process\n")
    echo = Echo(path)
    for number in range(200):
        site_log.log.info("line %d", number)  # each of the two writes it
        echo.show()
    shown = [line.partition(" line ")[2] for line in capsys.readouterr().out.splitlines()]
    assert shown == [str(number // 2) for number in range(400)]
    kept = path.with_name("site.log.1").read_text() + path.read_text()
    last = [line.partition(" line ")[2] for line in kept.splitlines()]
    assert last == shown[-len(last) :]
    assert len(kept) < 2200


def test_one_that_cannot_be_put_aside_grows(path):
    path.with_name("site.log.1").mkdir()
    path.write_text("x" * 1000)
    site_log.rotate(path)
    assert path.stat().st_size == 1000


def test_a_stranger_s_text_controls_nothing(path):
    site_log.log.warning("refused to answer: %s", "\x1b[1A\x1b[2K\n2026-01-01 00:00:00 answered")
    (first, second) = path.read_text("utf-8").splitlines()
    assert first == second
    assert first.endswith("refused to answer: \\x1b[1A\\x1b[2K\\n2026-01-01 00:00:00 answered")
