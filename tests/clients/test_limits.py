"""What takes too long is stopped, says so, and writes no core file."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

SPIN = """
import resource, sys, time
from fedcal.clients import limits
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
DEAF = """
from fedcal.clients import limits
limits.GRACE_S = 1
limits.limit_cpu(1)
while True:
    try:
        while True:
            pass
    except limits.OverLimit:
        pass
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.slow
def test_it_is_stopped_once_and_may_say_so() -> None:
    began = time.monotonic()
    done = run(SPIN)
    assert (done.stdout, done.returncode) == ("it takes more than 1 CPU seconds\nsaid\n", 0)
    assert time.monotonic() - began < 60


@pytest.mark.slow
def test_what_does_not_heed_it_is_killed() -> None:
    assert run(DEAF).returncode == -9
