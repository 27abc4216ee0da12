"""Figure 3 of Angelopoulos et al.: exact and private sets of a network on CIFAR-10.

The paper's other column, a network trained under differential privacy, waits for such a network:
`MODELS` takes one more line then.
"""

from __future__ import annotations

from fedcal.experiments.figures.drawing import Sheet
from fedcal.experiments.studies.set_trials import (
    ALPHA,
    BARS,
    EXACT,
    PRIVATE,
    by_both,
    histogram,
    histograms,
    rng_of,
    row_of,
    scored,
    setting,
    split,
    where,
)
from fedcal.experiments.studies.spec import Rows, RowsClaim, counted
from fedcal.strategies.outcome import Progress

MODELS = {"non-private": "resnet110-cifar10"}
"""How the network was trained -> data."""

N, TESTS, EPSILON, SPLITS = 5_000, 5_000, 8.0, 1_000
MINUSCULE = 0.05
"""An increase of sets, relative, that we call so."""


def rows(progress: Progress | None = None, *, splits: int = SPLITS) -> Rows:
    """Exact and private sets of the same random splits, for each of `MODELS`.

    Returns
    -------
    list of dict
        See `set_trials.row_of` and `histograms`; `data`, `model`, `sets`, `n`, `tests`, `accuracy`
    """
    found: Rows = []
    for model, name in counted(MODELS.items(), progress):
        data, rng = scored(name), rng_of("angelopoulos-figure3", name)
        both = by_both(split(data, N, TESTS, splits, rng), EPSILON, rng)
        for sets, (rule, judged) in both.items():
            place = {"data": name, "model": model, "sets": sets, "n": N, "tests": TESTS}
            found.append(row_of(place | {"accuracy": data.accuracy}, rule, judged))
            found += histograms(place, judged)
    return found


def claims(found: Rows) -> list[RowsClaim]:
    """What section 4.1 says."""
    exact, private = (setting(found, model="non-private", sets=s) for s in (EXACT, PRIVATE))
    more = private["set_size"] / exact["set_size"] - 1
    least = 1 - ALPHA - 3.5 * private["coverage_error"]
    return [
        (
            "Private sets cover 90 % in the mean of all splits",
            private["coverage"] >= least,
            f"{100 * private['coverage']:.2f} % (non-private {100 * exact['coverage']:.2f} %)",
        ),
        (
            f"The increase of sets by private calibration is minuscule: at most "
            f"{100 * MINUSCULE:.0f} %",
            more <= MINUSCULE,
            f"{100 * more:.2f} %, from {exact['set_size']:.4f} to {private['set_size']:.4f} labels",
        ),
        (
            "A privately trained network has larger sets",
            None,
            "no privately trained network yet",
            "accuracy 67 % instead of 73 %",
        ),
    ]


def sheet(found: Rows) -> Sheet | None:
    """Coverage and size, one row of panels for each model."""
    panels = []
    for model in MODELS:
        mine = {
            look: where(found, model=model, sets=sets)
            for look, sets in zip(BARS, (EXACT, PRIVATE), strict=True)
        }
        note = f"{model} model"
        panels += [
            histogram("Coverage of a split", note, "coverage", mine),
            histogram("Set sizes", note, "size", mine),
        ]
    legend = tuple(zip(BARS, (f"{EXACT} sets", f"{PRIVATE} sets"), strict=True))
    return Sheet("Private and non-private prediction sets", 2, tuple(panels), legend)
