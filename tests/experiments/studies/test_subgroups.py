"""The worked examples by group: what their figures and sentences are made of."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedcal.evaluation.intervals import Estimate
from fedcal.experiments.studies import subgroups


def estimate(value: float, low: float, high: float, drowned: bool = False) -> Estimate:
    return Estimate(value, low, high, 0.01, 0.01, 0.0, drowned)


def test_a_cell_says_what_noise_has_left() -> None:
    found = estimate(0.155, 0.068, 0.242)
    assert subgroups.cell(found, "+") == "**+15.5** (+6.8 to +24.2)"
    assert subgroups.cell(found) == "15.5 (6.8 to 24.2)"
    assert subgroups.cell(estimate(-0.2, -0.318, -0.01, True), "+") == "drowned (-31.8 to -1.0)"
    assert subgroups.cell(None) == "too few rows"
    assert subgroups.cell(subgroups.turned(found)) == "84.5 (75.8 to 93.2)"


@pytest.mark.slow
def test_figures_show_every_group_light_and_dark(tmp_path: Path) -> None:
    subgroups.main([str(tmp_path)])
    assert len(list(tmp_path.glob("*-dark.png"))) == len(subgroups.FIGURES) == 2
    for path in tmp_path.iterdir():
        assert path.read_bytes().startswith(b"\x89PNG")
    for shown, groups in zip(subgroups.FIGURES.values(), (16, 10), strict=True):
        assert {len(lines) for lines in shown().series.values()} == {groups}
