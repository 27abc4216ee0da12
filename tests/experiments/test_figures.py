"""Reliability diagrams: one panel for each record, labelled, with units, saved as PNG."""

from __future__ import annotations

import struct
from pathlib import Path

import matplotlib.patches
import numpy as np
import pytest

from experiments.figures import reliability_figure, save_figure
from fedcal.metrics import Reliability


def overconfident(rows: int = 400, seed: int = 0) -> Reliability:
    """Three classes; top labels of confidence up to 1 are right in about two of three rows."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet((0.3, 0.3, 0.3), rows)
    wrong = rng.random(rows) < 1 / 3
    return Reliability.of(probs, (probs.argmax(axis=1) + wrong) % 3)


def bars(axis: matplotlib.axes.Axes, label: str) -> list[matplotlib.patches.Rectangle]:
    (found,) = (c for c in axis.containers if c.get_label() == label)
    return list(found)


@pytest.mark.parametrize("panels", [1, 2, 5])
def test_each_record_has_a_diagram_over_its_histogram(panels: int) -> None:
    records = {f"method {i}": overconfident(seed=i) for i in range(panels)}
    figure = reliability_figure(records, "ResNet-110 on CIFAR-10")
    diagrams, histograms = figure.axes[:panels], figure.axes[panels:]
    assert len(histograms) == panels
    assert figure.get_suptitle() == "ResNet-110 on CIFAR-10"
    assert [axis.get_title() for axis in diagrams] == list(records)
    for axis, record in zip(diagrams, records.values(), strict=True):
        (text,) = axis.texts
        assert text.get_text() == f"ECE {100 * record.ece:.2f} %"


def test_axes_are_labelled_with_units() -> None:
    figure = reliability_figure({"a": overconfident(), "b": overconfident()}, "t")
    top_left, top_right, low_left, low_right = figure.axes
    assert top_left.get_ylabel() == "share correct"
    assert low_left.get_ylabel() == "% of rows"
    for axis in (low_left, low_right):
        assert axis.get_xlabel() == "confidence of the top label"
        assert axis.get_ylim() == (0, 100)
    for axis in (top_left, top_right):
        assert axis.get_xlim() == (0, 1)
        assert axis.get_ylim() == (0, 1)


def test_one_legend_explains_every_mark() -> None:
    figure = reliability_figure({"a": overconfident(), "b": overconfident()}, "t")
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        *("perfect calibration", "share correct", "overconfident", "underconfident")
    ]


def test_the_bars_are_the_record() -> None:
    record = overconfident()
    top, low = reliability_figure({"a": record}, "t").axes
    there = record.count > 0
    share = record.sum_correct[there] / record.count[there]
    confidence = record.sum_confidence[there] / record.count[there]
    correct = bars(top, "share correct")
    np.testing.assert_allclose([bar.get_height() for bar in correct], share)
    np.testing.assert_allclose([bar.get_x() for bar in correct], np.flatnonzero(there) / 15)
    # the gap bars reach from one to the other, on the side that is meant
    over, under = bars(top, "overconfident"), bars(top, "underconfident")
    assert any(confidence > share)
    for o, u, s, c in zip(over, under, share, confidence, strict=True):
        assert o.get_height() == pytest.approx(max(c - s, 0))
        assert u.get_height() == pytest.approx(max(s - c, 0))
        assert (o.get_y(), u.get_y()) == pytest.approx((s, c))
    (line,) = top.get_lines()
    assert np.asarray(line.get_xydata()).tolist() == [[0, 0], [1, 1]]
    (histogram,) = low.containers
    heights = [bar.get_height() for bar in histogram]
    np.testing.assert_allclose(heights, 100 * record.count / 400)
    assert sum(heights) == pytest.approx(100)


def test_colours_are_told_apart_without_colour() -> None:
    (top, _) = reliability_figure({"a": overconfident()}, "t").axes
    names = ("share correct", "overconfident", "underconfident")
    first = [bars(top, n)[0] for n in names]
    # the underconfident part is only outlined: the share correct shows through
    looks = {
        (b.get_hatch(), (b.get_facecolor(), b.get_edgecolor())[not b.get_fill()]) for b in first
    }
    assert len({hatch for hatch, _ in looks}) == 3
    assert len({colour for _, colour in looks}) == 3


def test_a_png_is_written(tmp_path: Path) -> None:
    panels = {"before": overconfident(), "after: ε = 1": overconfident(seed=1)}
    save_figure(reliability_figure(panels, "t"), tmp_path / "f.png")
    data = (tmp_path / "f.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    assert (width, height) == (round((3.3 * 2 + 0.6) * 150), round(4.9 * 150))
    assert len(data) > 20_000  # not an empty page
