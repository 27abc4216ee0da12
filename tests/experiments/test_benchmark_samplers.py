from __future__ import annotations

import pytest

from fedcal.experiments.benchmarks import samplers


def test_every_law_is_timed(capsys: pytest.CaptureFixture[str]) -> None:
    samplers.main(["--quick"])
    printed = capsys.readouterr().out
    for law in samplers.laws(quick=True):
        (line,) = [line for line in printed.splitlines() if law.name + " " in line]
        cells = [cell.strip() for cell in line.split("│")[2:4]]
        assert all(float(cell) > 0 for cell in cells)
