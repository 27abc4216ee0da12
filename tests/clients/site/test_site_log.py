"""The site's log: bounded, shared by processes, and of printable lines."""

import logging
import os

import pytest

from fedcal.clients.site import site_log
from fedcal.sites.site import Echo


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
    with Echo(path) as echo:
        for number in range(200):
            site_log.log.info("line %d", number)  # each of the two writes it
            site_log.rotate(path)  # as a new process does
            echo.show()
    shown = [line.partition(" line ")[2] for line in capsys.readouterr().out.splitlines()]
    assert shown == [str(number // 2) for number in range(400)]
    logs = [path, *(path.with_name(f"site.log.{n}") for n in range(1, site_log.OLDER + 1))]
    assert sorted(os.listdir(path.parent)) == sorted([".site.log.lock", *(p.name for p in logs)])
    kept = [line for log in reversed(logs) for line in log.read_text().splitlines()]
    last = [line.partition(" line ")[2] for line in kept]
    assert last == shown[-len(last) :]
    assert all(log.stat().st_size < 1100 for log in logs)


def test_a_stranger_s_text_controls_nothing(path):
    site_log.log.warning("refused to answer: %s", "\x1b[1A\x1b[2K\n2026-01-01 00:00:00 answered")
    (first, second) = path.read_text("utf-8").splitlines()
    assert first == second
    assert first.endswith("refused to answer: \\x1b[1A\\x1b[2K\\n2026-01-01 00:00:00 answered")
