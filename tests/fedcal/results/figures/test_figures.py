"""Figures as data, then drawn: for paper (PNG, SVG, PDF), and panel by panel for a page."""

import re
import struct
import xml.etree.ElementTree as ET
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from compared import cell
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from scipy import stats

import fedcal
from fedcal.core.checks import InputError
from fedcal.metrics import Reliability
from fedcal.results.comparison import SERIES, cells_of, write_column
from fedcal.results.figures import curves, diagrams
from fedcal.results.figures.drawing import Panel, Sheet, curve, draw, save_sheets, svgs


def overconfident(rows: int = 400, seed: int = 0, classes: int = 3) -> Reliability:
    """Top labels of confidence up to 1 are right in about two of three rows."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet((0.3,) * classes, rows)
    wrong = rng.random(rows) < 1 / 3
    return Reliability.of(probs, (probs.argmax(axis=1) + wrong) % classes)


def test_whiskers_are_wilson_s_intervals():
    low, high = diagrams.wilson(np.array([0, 3, 7, 10]), np.array([10, 10, 10, 10]))
    for k, (a, b) in zip((0, 3, 7, 10), zip(low, high, strict=True), strict=True):
        exact = stats.binomtest(k, 10).proportion_ci(method="wilson")
        assert (a, b) == pytest.approx((exact.low, exact.high), abs=1e-12)


CELLS = cells_of(
    [
        cell("none", "inf", 0.05, baseline=True, partition=None, clients=None, bytes_up=0),
        *(cell("a", e, v) for e, v in ((8.0, 0.01), (0.5, 0.03), ("inf", 0.005))),
        *(cell("b", e, v, bytes_up=9000) for e, v in ((0.5, 0.2), (8.0, 0.1))),
        cell("a", 0.5, 0.04, partition="natural"),
    ]
)


def panel_svg(panel: Panel) -> str:
    ((svg,), _) = svgs(Sheet("title", 1, (panel,)), "n")
    return svg


def test_untrusted_words_are_escaped():
    evil = '"><script>alert(1)</script>'
    label = "#0072b2 0.1234567 id= $x_1$"

    def plot(ax: Axes) -> None:
        ax.set(xlabel=evil, ylabel=label)

    svg = panel_svg(Panel(evil, plot, evil))
    assert "<script" not in svg
    root = ET.fromstring(svg)
    assert {evil, label} <= {t.text for t in root.iter("text")}
    assert root.get("aria-label") == evil


def test_words_of_a_figure_lie_inside_it_and_beside_each_other():
    sheets = [
        diagrams.reliability_sheet(
            {"before": overconfident(), "after": overconfident(seed=1)}, "t"
        ),
        diagrams.classes_sheet(overconfident(classes=6), overconfident(classes=6, seed=1), "t"),
        curves.quality_sheet(CELLS, ("ece", "nll"), "t"),
    ]
    for sheet in sheets:
        figure = draw(sheet)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()  # places the legend
        beyond = [
            tick.label1
            for ax in figure.axes
            for axis in (ax.xaxis, ax.yaxis)
            for tick in axis.get_major_ticks()
            if not axis.get_view_interval()[0] <= tick.get_loc() <= axis.get_view_interval()[1]
        ]
        words = [a for a in figure.findobj(Text) if a.get_text().strip() and a.get_visible()]
        found = [a for a in words if a not in beyond]  # nor are these drawn
        assert len(found) > 20
        ends = np.array([a.get_window_extent(canvas.get_renderer()).extents for a in found])
        assert np.all((ends[:, :2] >= figure.bbox.min) & (ends[:, 2:] <= figure.bbox.max))
        low, high = ends[:, None, :2] + 1, ends[None, :, 2:] - 1
        below = np.all(low <= high, axis=2)  # one begins before the other ends, on both axes
        over = np.argwhere(np.triu(below & below.T, 1))
        assert not len(over), [(found[i], found[k]) for i, k in over]


def test_png_and_svg_are_written_and_repeatable(tmp_path):
    panel = Panel("t", lambda ax: curve(ax, "after", [0.1, 0.9], [0.2, 0.8]), "said")
    sheet = Sheet("title & more", 1, (panel,), (("after", "after"),))
    written = save_sheets({"one": sheet}, tmp_path)
    assert written == ["one.png", "one.svg"]
    data = (tmp_path / "one.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, _ = struct.unpack(">II", data[16:24])
    assert width == round(draw(sheet).get_figwidth() * 300)
    root = ET.parse(tmp_path / "one.svg").getroot()
    assert "title & more" in "".join(root.itertext())  # text is text, not outlines
    before = {name: (tmp_path / name).read_bytes() for name in written}
    save_sheets({"one": sheet}, tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in written} == before


def test_a_figure_for_one_column_fits_it_and_has_all_metrics_and_the_best_eight(tmp_path):
    many = [cell(f"m{k}", e, 0.01 + k / 100) for k in range(11) for e in (0.5, 8.0)]
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
        write_column(folder, cells_of([CELLS[0], *reversed(many)]))
    pdf, svg = ((folders[0] / f"column.{kind}").read_bytes() for kind in ("pdf", "svg"))
    assert [(folders[1] / f"column.{kind}").read_bytes() for kind in ("pdf", "svg")] == [pdf, svg]
    assert re.search(rb"/MediaBox \[ ?0 0 228\.96 ", pdf)
    assert b"/Type3" not in pdf  # letters are letters
    root = ET.fromstring(svg)
    assert root.get("width") == "228.96pt"
    words = {"".join(text.itertext()) for text in root.findall(".//{*}text")}
    best = {"none (baseline)", *(f"m{k}" for k in range(SERIES - 1))}
    assert {w for w in words if re.match(r"m\d|none", w)} == best
    for metrics, panels in (((), 2), (("ece", "nll", "accuracy"), 6)):
        write_column(tmp_path, CELLS, metrics)
        assert (tmp_path / "column.svg").read_text().count('id="axes_') == panels


@pytest.fixture(scope="module")
def results():
    """A result of each kind that has figures, and the name of one of them."""
    asked: Any = {"partition": "natural", "unit": "example", "epsilon": 8.0}
    return {
        "calibrate": fedcal.simulate("heart-disease", **asked),
        "evaluate": fedcal.evaluate("heart-disease", by="site", **asked),
        "sets": fedcal.prediction_sets("heart-disease", **asked),
        "compare": fedcal.compare("heart-disease", method="fedtemp", jobs=1, seeds=1, **asked),
    }


@pytest.mark.parametrize(
    ("name", "panels", "x"),
    [
        ("calibrate", 2, "confidence of the top label"),
        ("evaluate", 1, "accuracy, %"),
        ("sets", 1, "coverage, %"),
        ("compare", 4, "epsilon"),
    ],
)
def test_plots_are_axes_that_keep_their_colours(results, name, panels, x, tmp_path):
    axes = results[name].plot()
    with pytest.raises(InputError, match="unknown figure 'roc'; allowed: "):
        results[name].plot("roc")
    assert np.size(axes) == panels
    first = np.ravel(axes)[0]
    assert (first.get_xlabel(), first.figure) == (x, pyplot.gcf())
    assert first.figure.legends or name != "calibrate"
    first.figure.savefig(tmp_path / "a.png")
    with mpl.rc_context({"axes.prop_cycle": "cycler(color=['k'])"}):
        first.figure.savefig(tmp_path / "b.png")
    pyplot.close(first.figure)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
