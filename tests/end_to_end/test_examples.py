"""Training and all that follows it, charged to one ledger: the example does what it says."""

import re
import runpy

import pytest
from extending import ROOT

from fedcal.privacy.ledger import Ledger

pytestmark = pytest.mark.usefixtures("quick_figures")

EXAMPLE = ROOT / "examples" / "train_calibrate_evaluate.py"


def test_one_ledger_is_charged_for_training_and_all_that_follows(tmp_path, capsys):
    assert len(EXAMPLE.read_text("utf-8").splitlines()) <= 80
    runpy.run_path(str(EXAMPLE))["main"](tmp_path)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        entries, cap = ledger.entries(), ledger.cap
    assert [entry.epsilon for entry in entries] == [5.0, 1.0, 1.0, 1.0]  # the fifth is refused
    assert sum(entry.epsilon for entry in entries) == cap
    assert all(entry.charged == tuple(range(1, entry.releases + 1)) for entry in entries)
    said = capsys.readouterr().out
    assert re.search(r"^ +8 at delta +3e-05  in all, of 8 at delta 0\.0001$", said, re.M)
    assert re.search(r"^once more\? .* epsilon 8 of 8 is spent", said, re.M)
    numbers = r"rows: ([\d.]+), calibrated ([\d.]+)$[^$]*released: [\d.]+ \(([\d.]+) to ([\d.]+)\)"
    model, calibrated, low, high = map(float, re.search(numbers, said, re.M).groups())
    assert low <= calibrated <= high < model
