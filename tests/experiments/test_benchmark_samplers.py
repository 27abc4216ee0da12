from __future__ import annotations

from pathlib import Path

import pytest

from fedcal.experiments.benchmarks import samplers
from fedcal.experiments.benchmarks.__main__ import main


def test_every_law_is_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["samplers", "--quick", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    for law in samplers.laws(quick=True):
        (line,) = [line for line in printed.splitlines() if law.name + " " in line]
        cells = [cell.strip() for cell in line.split("│")[2:4]]
        assert all(float(cell) > 0 for cell in cells)
