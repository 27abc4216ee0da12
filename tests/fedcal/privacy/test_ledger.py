"""The ledger: charged before the release, refuses what exceeds its cap, survives its process."""

import math
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from refusals import each_is_refused, refused

import fedcal
from fedcal.core.checks import BudgetExceeded, InputError
from fedcal.privacy.ledger import CAP_DELTA, Entry, Ledger

WORDS = {
    "mechanism": "gaussian",
    "unit": "user",
    "adjacency": "zero-out",
    "event": "4 x gaussian(7.46)",
}


def reserve(ledger: Ledger, run: str, epsilon: float, releases: int = 4, **change: object) -> None:
    values: Any = {"delta": 1e-5, "releases": releases, **WORDS, **change}
    ledger.reserve(Entry(run, epsilon, **values))


@pytest.fixture
def file(tmp_path):
    return tmp_path / "budget.ledger"


def test_a_reservation_is_read_back_bit_for_bit(file):
    epsilon, delta = 0.1 + 0.2, math.nextafter(1e-5, 1)
    with Ledger(file, 1.0) as ledger:
        reserve(ledger, "a", epsilon, delta=delta)
    with Ledger(file) as ledger:
        assert ledger.entries() == (Entry("a", epsilon, delta, 4, *WORDS.values(), ()),)
        with pytest.raises(InputError, match="'a'"):  # a run reserves once
            reserve(ledger, "a", 0.1)


@pytest.mark.parametrize("path", [None, "file"])
def test_epsilons_and_deltas_add_up_and_stop_at_the_cap(path, file):
    with Ledger(file if path else None, 1.0) as ledger:
        reserve(ledger, "a", 0.5)
        reserve(ledger, "b", 0.4, delta=0.0)
        where = str(file) if path else "in memory"
        refused(f"{where}.*0.9 of 1 .*0.2", reserve, ledger, "c", 0.2, error=BudgetExceeded)
        refused(".", reserve, ledger, "c", 0.1 + 1e-6, error=BudgetExceeded)
        assert ledger.spent() == (0.9, 1e-5)
        assert [entry.run for entry in ledger.entries()] == ["a", "b"]
        reserve(ledger, "d", 0.1)  # what still fits is granted
    with Ledger(None, 0.3) as ledger:
        for run in "abc":  # 0.1 + 0.1 + 0.1 > 0.3 in floats
            reserve(ledger, run, 0.1)


def test_what_is_no_budget_no_release_or_no_cap_is_refused(file):
    bad: list[dict[str, Any]] = [
        *({"epsilon": e} for e in (math.inf, math.nan, 0.0, -1.0, "much", 10**5000)),
        *({"delta": d} for d in (-1e-9, 1.0, math.nan)),
        *({"releases": r} for r in (0, 1.5, True, 2**70)),
        {"mechanism": None},
    ]
    with Ledger(None, 1.0) as ledger:
        call = partial(reserve, ledger, "a")
        each_is_refused([({"epsilon": 0.5, **row}, "") for row in bad], lambda row: call(**row))
        assert ledger.entries() == ()
        reserve(ledger, "a", 1.0)
        each_is_refused([(n, "") for n in (0, 1.0, True)], partial(ledger.charge, "a"))
        assert ledger.entries()[0].charged == ()
    each_is_refused([(cap, "cap must") for cap in (0.0, math.nan, "2")], partial(Ledger, file))
    each_is_refused([(cap, "cap on delta") for cap in (0.0, 1.0)], partial(Ledger, file, 1.0))
    assert not file.exists()


def test_the_file_keeps_its_cap(file):
    refused("needs a cap|a cap is needed", Ledger, file)
    assert not file.exists()
    for cap in (0.1, None, 0.1):
        with Ledger(file, cap) as ledger:
            assert ledger.cap == 0.1
    refused(f"{file}.*0.1.*0.2", Ledger, file, 0.2)


def test_units_do_not_share_a_sum():
    with Ledger(None, 1.0) as ledger:
        reserve(ledger, "a", 0.1)
        with pytest.raises(InputError, match="'example'"):
            reserve(ledger, "b", 0.1, unit="example")
        reserve(ledger, "c", 0.1, adjacency="replace")
        assert len(ledger.entries()) == 2


def test_releases_one_to_r_are_charged_once_also_after_a_restart(file):
    with Ledger(file, 1.0) as ledger:
        reserve(ledger, "a", 1.0, releases=3)
        with pytest.raises(BudgetExceeded, match="'b'"):  # without a reservation
            ledger.charge("b", 1)
        ledger.charge("a", 1)
    with Ledger(file) as ledger:
        with pytest.raises(BudgetExceeded, match="release 1"):
            ledger.charge("a", 1)
        ledger.charge("a", 2)
        ledger.charge("a", 3)
        with pytest.raises(BudgetExceeded, match="release 4"):
            ledger.charge("a", 4)
        assert ledger.entries()[0].charged == (1, 2, 3)


def test_charges_are_on_disk_before_the_call_returns(file):
    # The child dies without closing anything, right after its charge.
    child = start(
        "ledger.reserve(Entry('a', 0.6, 0.0, 2, 'm', 'user', 'z', 'e'))\n"
        "ledger.charge('a', 1)\n"
        "os._exit(3)\n",
        file,
    )
    _, errors = child.communicate()
    assert child.returncode == 3, errors
    with Ledger(file) as ledger:
        assert ledger.entries()[0].charged == (1,)
        assert ledger.spent() == (0.6, 0.0)


def test_only_a_reservation_without_a_charge_is_given_back():
    with Ledger(None, 1.0) as ledger:
        reserve(ledger, "a", 1.0)
        assert ledger.cancel("a")
        assert ledger.spent() == (0.0, 0.0)
        reserve(ledger, "a", 0.8, releases=4)  # it can be taken again
        assert not ledger.cancel("b")
        ledger.charge("a", 1)
        assert not ledger.cancel("a")
        assert ledger.spent()[0] == 0.8
        with pytest.raises(BudgetExceeded):
            reserve(ledger, "b", 0.3)


def test_deltas_have_a_cap_of_their_own(file):
    with Ledger(None, 1.0) as ledger:
        assert ledger.cap_delta == CAP_DELTA
    with Ledger(file, 1.0, 1e-4) as ledger:
        reserve(ledger, "a", 1e-6, delta=9e-5)
        with pytest.raises(BudgetExceeded, match=r"delta 9e-05 of 0\.0001 is spent.* 2e-05 more"):
            reserve(ledger, "b", 1e-6, delta=2e-5)
        reserve(ledger, "c", 1e-6, delta=1e-5)
        assert [entry.run for entry in ledger.entries()] == ["a", "c"]
    with Ledger(file, cap_delta=1e-4) as ledger, pytest.raises(BudgetExceeded):
        reserve(ledger, "d", 1e-6)
    with pytest.raises(InputError, match=r"cap on delta of .* must be 0\.0001, got 0\.001"):
        Ledger(file, 1.0, 1e-3)


def damage(file: Path, *statements: str) -> None:
    file.unlink(missing_ok=True)
    with Ledger(file, 1.0) as ledger:
        reserve(ledger, "a", 0.5)
        ledger.charge("a", 1)
    with closing(sqlite3.connect(file)) as db, db:
        for statement in statements:
            db.execute(statement)


def test_a_damaged_ledger_is_refused(file):
    for statement in (
        "DROP TABLE charges",
        "DELETE FROM cap",
        "UPDATE cap SET epsilon = 9e999",
        "UPDATE runs SET epsilon = -5",
        "UPDATE runs SET delta = 2",
        "DELETE FROM runs",
        "PRAGMA user_version = 1",
    ):
        damage(file, statement)
        refused(str(file), Ledger, file)
    damage(file)
    file.write_bytes(file.read_bytes()[:5000])
    refused(str(file), Ledger, file)


def start(body: str, file: Path) -> subprocess.Popen[str]:
    head = (
        "import os, sys\n"
        "from fedcal.core.checks import BudgetExceeded\n"
        "from fedcal.privacy.ledger import Entry, Ledger\n"
        "ledger = Ledger(sys.argv[1], 1.0)\n"
    )
    root = str(Path(fedcal.__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, "-c", head + body, str(file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    )


RACE = """
print("open", flush=True)
sys.stdin.readline()
try:
    ledger.reserve(Entry(f"run {os.getpid()}", 0.6, 1e-5, 1, "m", "user", "z", "e"))
    print("granted")
except BudgetExceeded:
    print("refused")
ledger.close()
"""


def test_of_two_processes_that_race_for_the_last_budget_one_is_refused(file):
    racers = [start(RACE, file) for _ in range(2)]  # they race to make the file, too
    answers = []
    try:
        for racer in racers:
            assert racer.stdout.readline() == "open\n"
        # Both are sent off while the file is locked, so both wait at the same door.
        with Ledger(file, 1.0) as gate, gate._db.transaction():
            for racer in racers:
                racer.stdin.write("go\n")
                racer.stdin.flush()
    finally:
        for racer in racers:
            output, errors = racer.communicate()
            answers.append(output.strip() or errors)
    assert sorted(answers) == ["granted", "refused"]
    with Ledger(file) as ledger:
        assert ledger.spent()[0] == 0.6
