"""Figures as data, then drawn: for paper (PNG, SVG), and panel by panel for a page."""

from __future__ import annotations

import itertools
import math
import re
import struct
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from scipy import stats

from fedcal.experiments.figures import draw, reliability_figure, save_figure, save_sheets
from fedcal.experiments.figures.curves import (
    bytes_sheet,
    epsilon_sheet,
    facets,
    rounds_sheet,
    series_of,
    spaced_axis,
    trust_sheet,
)
from fedcal.experiments.figures.diagrams import (
    FEWEST,
    class_gaps,
    classes_sheet,
    diagram,
    gap_panel,
    histogram,
    pooled,
    reliability_sheet,
    wilson,
    worst_classes,
)
from fedcal.experiments.figures.inline import fixed, key_svg, panel_svg
from fedcal.experiments.figures.panel import (
    STYLES,
    Axis,
    Bars,
    Level,
    Line,
    Panel,
    Sheet,
    Whiskers,
    linear_axis,
    log_axis,
    unit_axis,
)
from fedcal.metrics import Reliability


def overconfident(rows: int = 400, seed: int = 0, classes: int = 3) -> Reliability:
    """Top labels of confidence up to 1 are right in about two of three rows."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet((0.3,) * classes, rows)
    wrong = rng.random(rows) < 1 / 3
    return Reliability.of(probs, (probs.argmax(axis=1) + wrong) % classes)


def marks(panel: Panel, kind: type, series: str) -> Any:
    (found,) = (m for m in panel.marks if isinstance(m, kind) and m.series == series)
    return found


# --- what is drawn ------------------------------------------------------------------------------


def test_the_bars_are_the_record() -> None:
    record = overconfident()
    panel = diagram("after", record)
    there = record.count > 0
    share = record.sum_correct[there] / record.count[there]
    confidence = record.sum_confidence[there] / record.count[there]
    correct, over, under = (marks(panel, Bars, s) for s in ("correct", "over", "under"))
    np.testing.assert_allclose(correct.high, share)
    np.testing.assert_array_equal(correct.low, 0)
    np.testing.assert_allclose(correct.left, np.flatnonzero(there) / 15)
    # the gaps reach from one to the other, on the side that is meant
    np.testing.assert_allclose(over.high - over.low, np.maximum(confidence - share, 0))
    np.testing.assert_allclose(under.high - under.low, np.maximum(share - confidence, 0))
    np.testing.assert_allclose(over.low, share)
    np.testing.assert_allclose(under.high, share)
    assert (confidence > share).any()
    assert (confidence < share).any()
    assert f"ECE {100 * record.ece:.2f} %" == panel.note
    assert f"{100 * record.ece:.3f} %" in panel.said


def test_the_histogram_is_the_record() -> None:
    record = overconfident()
    bars = marks(histogram("x", record), Bars, "correct")
    np.testing.assert_allclose(bars.high, 100 * record.count / 400)
    assert sum(bars.high) == pytest.approx(100)


def test_whiskers_are_wilson_s_intervals() -> None:
    low, high = wilson(np.array([0, 3, 7, 10]), np.array([10, 10, 10, 10]))
    for k, (a, b) in zip((0, 3, 7, 10), zip(low, high, strict=True), strict=True):
        exact = stats.binomtest(k, 10).proportion_ci(method="wilson")
        assert (a, b) == pytest.approx((exact.low, exact.high), abs=1e-12)
    panel = diagram("x", overconfident())
    bars, whiskers = marks(panel, Bars, "correct"), marks(panel, Whiskers, "whisker")
    assert np.all((whiskers.low <= bars.high) & (bars.high <= whiskers.high))


def test_all_classes_up_to_twenty_and_then_the_worst() -> None:
    few = overconfident(classes=20), overconfident(classes=20, seed=1)
    assert worst_classes(*few).tolist() == list(range(20))
    many = overconfident(classes=40), overconfident(classes=40, seed=1)
    shown, gaps = worst_classes(*many), np.maximum(*map(class_gaps, many))
    assert len(shown) == 20
    assert gaps[shown].min() >= np.delete(gaps, shown).max()
    assert np.all(np.diff(gaps[shown]) <= 0)  # the worst first
    sheet = classes_sheet(*many, "t")
    assert [p.title.partition(":")[0] for p in sheet.panels] == [f"class {j}" for j in shown]


def test_class_gaps_average_to_the_classwise_ece() -> None:
    record = overconfident(classes=7)
    assert class_gaps(record).mean() == pytest.approx(record.classwise_ece, rel=1e-12)


def test_a_class_panel_is_the_class_against_the_rest() -> None:
    before, after = overconfident(), overconfident(seed=1)
    panel = classes_sheet(before, after, "t").panels[1]
    for series, record in (("before", before), ("after", after)):
        line, whiskers = marks(panel, Line, series), marks(panel, Whiskers, series)
        rows, confidence, correct = pooled(record, 1)
        np.testing.assert_allclose(line.y, correct / rows)
        np.testing.assert_allclose(line.x, confidence / rows)
        assert np.all((whiskers.low <= line.y) & (line.y <= whiskers.high))
        assert f"{correct[0]} of {rows[0]}" in panel.said
    assert "ECE" in panel.note
    assert panel.title == f"class 1: {after.class_sum_correct[1].sum()} rows"


@pytest.mark.parametrize("rows", [5, 29, 30, 400, 3000])
def test_bins_of_few_rows_are_pooled(rows: int) -> None:
    record = overconfident(rows)
    for j in range(3):
        count, confidence, correct = pooled(record, j)
        assert count.sum() == rows
        assert len(count) == 1 or count.min() >= FEWEST
        assert confidence.sum() == pytest.approx(record.class_sum_confidence[j].sum())
        assert correct.sum() == record.class_sum_correct[j].sum()
        assert np.all(np.diff(confidence / count) > 0)  # neighbours only
        assert (len(count) == 15) is bool((record.class_count[j] >= FEWEST).all())


def test_the_panel_of_all_classes_counts_those_that_got_better() -> None:
    before, after = overconfident(classes=30), overconfident(classes=30, seed=3)
    panel = gap_panel(before, after)
    better = int((class_gaps(after) < class_gaps(before)).sum())
    assert panel.note == f"{better} of 30 classes better"
    points = marks(panel, Line, "class")
    assert not points.line
    np.testing.assert_allclose(points.x, 100 * class_gaps(before))


def test_rounds_begin_with_before() -> None:
    before = {"ece": 0.1, "classwise_ece": 0.02, "nll": 0.5, "accuracy": 0.9}
    after = {k: v / 2 for k, v in before.items()}
    records = [
        {"round": 1, "test": after, "temperature": 2.0},
        {"round": 2, "temperature": 3.0},  # not judged
        {"round": 3, "test": before, "temperature": 2.5},
    ]
    sheet = rounds_sheet(before, records, "t")
    assert sheet is not None
    assert [p.title for p in sheet.panels] == [
        *("ECE", "classwise ECE", "NLL", "accuracy", "temperature")
    ]
    line = marks(sheet.panels[0], Line, "after")
    assert (list(line.x), list(line.y)) == ([0, 1, 3], [10.0, 5.0, 10.0])
    assert list(marks(sheet.panels[4], Line, "after").y) == [1.0, 2.0, 2.5]
    assert marks(sheet.panels[2], Level, "reference").y == 0.5
    assert rounds_sheet(before, [{"round": 1}], "t") is None


# --- a comparison -------------------------------------------------------------------------------


def cell(label: str, epsilon: float | None, mean: float, **more: Any) -> dict[str, Any]:
    metrics = ("ece", "classwise_ece", "nll", "accuracy")
    return {
        **{"data": "d", "method": label, "label": label, "clients": 10, "partition": "iid"},
        **{"sampling_rate": 1.0, "unit": "user", "epsilon": epsilon, "baseline": False},
        **{"bytes_up": 100, "after": {m: {"mean": mean, "std": 0.0} for m in metrics}},
        **more,
    }


CELLS = [
    cell("none", None, 0.05, baseline=True, partition=None, clients=None, bytes_up=0),
    *(cell("a", e, v) for e, v in ((8.0, 0.01), (0.5, 0.03), (None, 0.005))),
    *(cell("b", e, v, bytes_up=9000) for e, v in ((0.5, 0.2), (8.0, 0.1))),
    cell("a", 0.5, 0.04, partition="natural"),
]


def test_budgets_lie_on_a_logarithmic_axis_and_none_at_its_right() -> None:
    axis, places = spaced_axis("epsilon", [0.5, 8.0, math.inf, 0.5])
    assert places[8.0] - places[0.5] == pytest.approx(math.log10(16))
    assert places[math.inf] == max(places.values())
    assert [text for _, text in axis.ticks] == ["0.5", "8", "∞"]
    assert axis.low < min(places.values())
    assert axis.high > places[math.inf]


def test_a_facet_for_each_partition_with_the_baselines_in_all() -> None:
    groups = facets(CELLS)
    assert [(g.title, len(g.cells)) for g in groups] == [("iid", 5), ("natural", 1)]
    assert [[c["label"] for c in g.baselines] for g in groups] == [["none"], ["none"]]


def test_quality_against_epsilon() -> None:
    sheet = epsilon_sheet(CELLS, ("ece", "accuracy"), "t")
    assert (len(sheet.panels), sheet.columns) == (4, 2)
    assert [p.note for p in sheet.panels] == ["iid", "iid", "natural", "natural"]
    looks, panel = series_of(CELLS), sheet.panels[0]
    assert panel.y.log  # from 0.5 to 20 %
    line = marks(panel, Line, looks["a"])
    assert list(line.y) == pytest.approx([3.0, 1.0, 0.5])  # in the order of budgets
    assert list(line.x) == sorted(line.x)
    assert marks(panel, Level, looks["none"]).y == pytest.approx(5.0)
    assert dict(sheet.legend)[looks["none"]] == "none (baseline)"
    assert "a: 3, 1, 0.5" in panel.said


def test_quality_against_bytes() -> None:
    sheet = bytes_sheet(CELLS, ("ece",), "t")
    assert [p.note for p in sheet.panels] == ["ε = 0.5", "ε = 8", "no privacy"]
    assert all(p.x.log for p in sheet.panels)
    look = series_of(CELLS)["a"]
    lines = [m for m in sheet.panels[0].marks if isinstance(m, Line) and m.series == look]
    points = [(list(m.x), list(m.y), dict(sheet.legend)[m.shape]) for m in lines]
    assert points == [
        ([100], pytest.approx([3.0]), "iid"),
        ([100], pytest.approx([4.0]), "natural"),
    ]
    assert "none (baseline)" not in dict(sheet.legend).values()


def test_more_kinds_of_cells_than_markers_have_panels() -> None:
    kinds = itertools.product(("user", "example"), ("central", "local"), range(5))
    cells = [cell("a", 1.0, 0.01, unit=u, trust=t, partition=f"dirichlet:{k}") for u, t, k in kinds]
    sheet = bytes_sheet(cells, ("ece",), "t")
    assert [p.note for p in sheet.panels] == [f"ε = 1, dirichlet:{k}" for k in range(5)]
    assert [text for _, text in sheet.legend] == [
        *("a", "unit user, trust central", "unit user, trust local"),
        *("unit example, trust central", "unit example, trust local"),
    ]
    for panel in sheet.panels:
        assert len({m.shape for m in panel.marks if isinstance(m, Line)}) == 4


def test_quality_by_trust_model() -> None:
    trusts = {"central": 0.01, "local": 0.04}
    cells = [
        CELLS[0],
        *(cell(m, e, v, trust=t) for m in "ab" for e in (1.0, 8.0) for t, v in trusts.items()),
    ]
    sheet = trust_sheet(cells, ("ece",), "t")
    assert [p.note for p in sheet.panels] == ["a, iid", "b, iid"]
    assert [text for _, text in sheet.legend] == [
        *("none (baseline)", "trust central", "trust local")
    ]
    local = marks(sheet.panels[1], Line, sheet.legend[2][0])
    assert list(local.y) == pytest.approx([4.0, 4.0])
    for c in cells[1:]:
        c["mechanism"] = "gaussian"
    more = [{**c, "mechanism": "laplace"} for c in cells[1:] if c["trust"] == "local"]
    several = trust_sheet([*cells, *more], ("ece",), "t")
    assert [p.note for p in several.panels] == ["a, iid", "b, iid"]
    assert [text for _, text in several.legend[2:]] == [
        *("trust local, gaussian", "trust local, laplace")
    ]


# --- axes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values", [(0.2, 0.36), (93.56, 93.56), (0.0, 0.0), (-3.0, 11.0), (1e-5, 2e-5), (40.0, 94.0)]
)
def test_linear_ticks_are_few_distinct_and_inside(values: tuple[float, float]) -> None:
    axis = linear_axis("x", values)
    assert 2 <= len(axis.ticks) <= 7
    assert len({text for _, text in axis.ticks}) == len(axis.ticks)
    for value, text in axis.ticks:
        assert axis.low <= value <= axis.high
        assert float(text) == pytest.approx(value, abs=1e-9)
    assert axis.low < min(values) <= max(values) < axis.high


@pytest.mark.parametrize("values", [(0.5, 20.0), (64.0, 1e6), (3.0, 3.1), (1e-4, 90.0)])
def test_logarithmic_ticks_are_few_and_inside(values: tuple[float, float]) -> None:
    axis = log_axis("x", values)
    assert 1 <= len(axis.ticks) <= 7
    assert all(axis.low <= v <= axis.high for v, _ in axis.ticks)
    assert axis.place(axis.low) == 0
    assert axis.place(math.sqrt(axis.low * axis.high)) == pytest.approx(0.5)


def test_far_values_are_cut() -> None:
    axis = Axis("x", 1.0, 10.0, (), log=True)
    assert axis.place(0.0) == -0.5
    assert axis.place(1e9) == 1.5


# --- inline SVG ---------------------------------------------------------------------------------


def drawn(panel: Panel, name: str = "n") -> ET.Element:
    return ET.fromstring(panel_svg(panel, name))


def corners(path: ET.Element) -> np.ndarray:
    return np.array(re.findall(r"[ML] (\S+) (\S+)", str(path.get("d"))), float)


def test_inline_svg_shows_the_marks_where_they_belong() -> None:
    ticks = ((0.0, "0"), (1.0, "1"))
    panel = Panel(
        "t",
        Axis("a", 0.0, 1.0, ticks),
        Axis("b", 0.0, 1.0, ticks),
        (Bars("correct", [0.5], [1.0], [0.0], [0.5]), Line("after", [0.0, 1.0], [1.0, 0.0])),
        "said",
    )
    root = drawn(panel)
    assert root.get("role") == "img"
    assert root.get("aria-label") == "said"
    _, _, width, height = map(float, str(root.get("viewBox")).split())
    clipped = [path for path in root.iter("path") if path.get("clip-path")]
    assert len(clipped) == 1
    (left, top), (right, bottom) = corners(clipped[0]).min(axis=0), corners(clipped[0]).max(axis=0)
    assert "fill:var(--blue)" in str(clipped[0].get("style"))
    assert 0 < left < right < width
    assert 0 < top < bottom < height
    assert right - left == pytest.approx(bottom - top, abs=0.2)  # half of each side of a square
    line = next(p for p in root.iter("path") if "stroke-width:1.1" in str(p.get("style")))
    (x0, y0), (x1, y1) = corners(line)
    assert (x0 + x1) / 2 == pytest.approx(left, abs=0.02)
    assert (y0 + y1) / 2 == pytest.approx(top, abs=0.02)
    assert len(list(root.iter("use"))) == 2  # a marker for each point
    words = list(root.iter("text"))
    assert [t.text for t in words] == ["0", "1", "a", "0", "1", "b"]
    assert "font" not in "".join(str(t.attrib) for t in words)  # they are the page's


def test_empty_bars_are_left_out_and_hatches_are_defined() -> None:
    svg = panel_svg(diagram("x", overconfident()), "p7")
    root = ET.fromstring(svg)
    empty = replace(
        diagram("x", overconfident()), marks=(Bars("over", [0.0], [1.0], [0.5], [0.5]),)
    )
    assert len(list(drawn(empty).iter("path"))) == 2  # the grid and the axes
    defined = {str(e.get("id")) for e in root.iter() if e.get("id")}
    used = {part.partition(")")[0] for part in svg.split("url(#")[1:]}
    assert used <= defined
    assert all(name.startswith("p7") for name in defined)
    assert len(list(root.iter("pattern"))) == 2
    assert "#" not in svg.replace("url(#p7", "")  # every colour is the page's


def test_the_same_panel_is_the_same_svg_and_small() -> None:
    panel = diagram("x", overconfident())
    assert panel_svg(panel, "n") == panel_svg(panel, "n")
    assert len(panel_svg(panel, "n")) < 10_000
    assert "var(" not in panel_svg(panel, "n", fixed)


def test_untrusted_words_are_escaped() -> None:
    evil = '"><script>alert(1)</script>'
    axis = Axis(evil, 0.0, 1.0, ((0.5, evil),))
    svg = panel_svg(Panel(evil, axis, axis, (), evil), "n")
    assert "<script" not in svg
    label = "#0072b2 0.1234567 id="
    told = drawn(Panel("", Axis(label, 0.0, 1.0, ()), axis, (), ""))
    assert label in [t.text for t in told.iter("text")]
    assert drawn(Panel(evil, axis, axis, (), evil)).get("aria-label") == evil


@pytest.mark.parametrize("series", STYLES)
def test_every_series_has_a_sample(series: str) -> None:
    for bars in (False, True):
        assert len(ET.fromstring(key_svg(series, "n", bars=bars))) >= 1
        assert "var(" not in key_svg(series, "n", fixed, bars=bars)


# --- colours ------------------------------------------------------------------------------------

DEFICIENCIES = {  # Machado, Oliveira & Fernandes 2009, severity 1, on linear RGB
    "protanopia": (
        *((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216)),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        *((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413)),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        *((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602)),
        (0.004733, 0.691367, 0.303900),
    ),
    "none": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
}


def lab(colour: str, seen_with: str) -> np.ndarray:
    """CIE L*a*b* of a hex colour as seen with a deficiency."""
    rgb = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(np.array(DEFICIENCIES[seen_with]) @ linear, 0, 1)
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    xyz = to_xyz @ linear / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("seen_with", DEFICIENCIES)
@pytest.mark.parametrize("scheme", ["colour", "dark"])
@pytest.mark.parametrize(
    "together", [("correct", "over", "under"), ("before", "after", "perfect"), ("m0", "m1", "m2")]
)
def test_colours_differ_for_every_eye(
    together: tuple[str, ...], scheme: str, seen_with: str
) -> None:
    for one, other in itertools.combinations(together, 2):
        a, b = (lab(getattr(STYLES[s], scheme), seen_with) for s in (one, other))
        assert np.linalg.norm(a - b) > 15, (one, other)  # 2 is a just noticeable difference


@pytest.mark.parametrize("group", ["m", "b"])
def test_methods_differ_without_any_colour(group: str) -> None:
    looks = [
        (s.dash, s.marker, s.filled)
        for name, s in STYLES.items()
        if name[0] == group and name[1:].isdigit()
    ]
    assert len(looks) == len(set(looks))
    bars = [STYLES[s] for s in ("correct", "over", "under")]
    assert len({s.hatch for s in bars}) == 3


# --- for paper ----------------------------------------------------------------------------------


def test_a_figure_for_paper_has_every_panel_and_one_legend() -> None:
    records = {f"method {i}": overconfident(seed=i) for i in range(3)}
    figure = reliability_figure(records, "ResNet-110 on CIFAR-10")
    words = [t.get_text() for t in figure.findobj(Text)]
    assert "ResNet-110 on CIFAR-10" in words
    for heading, record in records.items():
        assert {heading, f"ECE {100 * record.ece:.2f} %"} <= set(words)
    assert words.count("share correct") >= 2  # the axis and the legend
    assert words.count("confidence of the top label") == 3  # once for each column
    (legend,) = figure.legends
    assert [t.get_text() for t in legend.get_texts()] == [
        *("perfect calibration", "share correct", "overconfident", "underconfident"),
        "95 % interval of a bin",
    ]


def test_words_of_a_figure_lie_inside_it_and_beside_each_other() -> None:
    sheets = [
        reliability_sheet({"before": overconfident(), "after": overconfident(seed=1)}, "t"),
        classes_sheet(overconfident(classes=12), overconfident(classes=12, seed=1), "t"),
        epsilon_sheet(CELLS, ("ece", "nll"), "t"),
    ]
    for sheet in sheets:
        figure = draw(sheet)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()  # places the legend
        renderer = canvas.get_renderer()
        whole = figure.bbox
        found = [a for a in figure.findobj(Text) if a.get_text().strip()]
        boxes = [a.get_window_extent(renderer) for a in found]
        for box in boxes:
            assert whole.x0 <= box.x0 <= box.x1 <= whole.x1
            assert whole.y0 <= box.y0 <= box.y1 <= whole.y1
        for (i, one), (k, other) in itertools.combinations(enumerate(boxes), 2):
            assert not one.padded(-1).overlaps(other.padded(-1)), (found[i], found[k])


def test_png_and_svg_are_written_and_repeatable(tmp_path: Path) -> None:
    axis = unit_axis("x")
    panel = Panel("t", axis, axis, (Line("after", [0.1, 0.9], [0.2, 0.8]),), "said")
    sheet = Sheet("title & more", 1, (panel,), (("after", "after"),))
    written = save_sheets({"one": sheet}, tmp_path)
    assert written == ["one.png", "one.svg"]
    data = (tmp_path / "one.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, _ = struct.unpack(">II", data[16:24])
    assert width == round(draw(sheet).get_figwidth() * 300)
    root = ET.parse(tmp_path / "one.svg").getroot()
    words = "".join(root.itertext())
    assert "title & more" in words  # text is text, not outlines
    before = {name: (tmp_path / name).read_bytes() for name in written}
    save_sheets({"one": sheet}, tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in written} == before


def test_a_png_of_a_reliability_diagram_is_not_empty(tmp_path: Path) -> None:
    save_figure(reliability_figure({"a": overconfident()}, "t"), tmp_path / "f.png")
    assert (tmp_path / "f.png").stat().st_size > 20_000
