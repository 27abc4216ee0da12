"""Tables: marks, the best of a line, ratios, and files for programs."""

from study_row import CELL

from fedcal.experiments.report.tables import Marked
from fedcal.experiments.research.studies.cells import completed
from fedcal.experiments.research.studies.layout import MARK, blocks_of
from fedcal.experiments.research.studies.spec import Experiment, Part, Record

PAPER = {"Base": "none", "A": "fedbbq", "B": "fedtemp"}
POOLED = {"pooled": "pooled-temperature"}
GRID = Experiment(
    name="g",
    title="G",
    about="",
    seeds=2,
    parts=(Part("p", PAPER, {}, "paper"), Part("q", POOLED, {}, "ours")),
    reference="pooled",
)


def cell(title: str, ece: list[float], accuracy: float = 0.9, network: str = "net") -> Record:
    own = title in POOLED
    changed = {
        **{"network": network, "title": title, "method": (PAPER | POOLED)[title]},
        **{"part": "q" if own else "p", "block": "ours" if own else "paper", "partition": "iid"},
        **{"baseline": title in ("Base", "pooled"), "classwise_ece": ece},
        "accuracy": [accuracy] * len(ece),
    }
    return completed(CELL | changed)


CELLS = [
    cell("Base", [0.05]),
    cell("A", [0.01, 0.01], accuracy=0.85),
    cell("B", [0.02, 0.04]),
    cell("pooled", [0.02]),
]


def test_the_best_is_sought_among_those_that_keep_accuracy():
    blocks = paper, ours, _ = blocks_of(GRID, CELLS)
    assert paper.columns == ("network", "Base", "A", "B")
    base, lossy = Marked("5.000"), Marked("1.000 (0.000)", mark=MARK)
    assert list(paper.rows) == [("net", base, lossy, Marked("3.000 (1.414)", best=True))]
    assert ours.rows[0][1] == Marked("2.000")  # a pooled baseline competes with nobody
    assert blocks_of(GRID, CELLS[::-1]) == blocks  # in the experiment's order
    failed = [*CELLS[:2], CELLS[2] | {"failures": ["no"]}, CELLS[3]]
    ((_, *found),) = blocks_of(GRID, failed)[0].rows
    assert found == [base, lossy, "failed"]  # alone, the model wins nothing


def test_ratios_are_to_the_reference_of_the_same_network():
    other = [cell(c["title"], [0.03], network="other") for c in CELLS]
    ratios = blocks_of(GRID, [*CELLS, *other])[-1]
    assert ratios.columns == ("network", "A", "B")
    assert list(ratios.rows) == [
        ("net", "0.500", "1.500"),
        ("other", "1.000", "1.000"),
        ("mean", "0.750", "1.250"),
    ]
