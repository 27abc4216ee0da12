"""Figure 6: ECE and loss on training and on test rows."""

from __future__ import annotations

from collections.abc import Sequence

from fedcal.experiments.research.studies.claims import all_of, larger
from fedcal.experiments.research.studies.spec import Record, Rows, RowsClaim
from fedcal.experiments.research.studies.zhang.grid import DP, NON_PRIVATE, measured
from fedcal.experiments.research.studies.zhang.models import PLAIN, Training
from fedcal.experiments.research.studies.zhang.scores import MATTERS, above
from fedcal.experiments.research.studies.zhang.tasks import tasks
from fedcal.strategies.server.outcome import Progress

SEEDS = 5
METHODS = {
    f"{DP}, epsilon = 8": Training(8.0),
    f"{DP}, epsilon = 3": Training(3.0),
    NON_PRIVATE: PLAIN,
}
NEARLY = 0.1
"""Relative difference of train and test ECE up to which they are said to agree nearly."""


def rows(
    data: Sequence[str] | None = None, seeds: int = SEEDS, progress: Progress | None = None
) -> Rows:
    """Both models on all data.

    Returns
    -------
    list of dict
        what = "method": `method`, see `grid.over_seeds`
    """
    todo = [(of, title, how) for of in tasks(data) for title, how in METHODS.items()]
    return measured("method", "method", todo, seeds, progress)


def claims(found: Sequence[Record]) -> list[RowsClaim]:
    """What section 4.3 says, of each of the data; and what recalibration without a split needs."""
    said: list[RowsClaim] = []
    private, *_, plain = METHODS
    for name in dict.fromkeys(r["data"] for r in found):
        of = {r["method"]: r for r in found if r["data"] == name}
        for key, what in (("ece", "ECE"), ("nll", "loss")):
            gaps = {t: abs(of[t][key] - of[t][f"train {key}"]) for t in (private, plain)}
            said.append(
                (
                    f"{name}: the difference of train and test {what} is smaller for the private "
                    "model",
                    larger(gaps[plain], gaps[private], MATTERS),
                    ", ".join(
                        f"{t}: {of[t][f'train {key}']:.4f} and {of[t][key]:.4f}"
                        for t in (private, plain)
                    ),
                )
            )
        one, other = of[private]["train ece"], of[private]["ece"]
        said += [
            (
                f"{name}: the private model's ECE is larger on training and on test rows",
                all_of(above(of[private], of[plain], key) for key in ("train ece", "ece")),
                f"{one:.4f} and {other:.4f} against {of[plain]['train ece']:.4f} and "
                f"{of[plain]['ece']:.4f}",
            ),
            (
                f"{name}: the private model's train and test ECE are within {100 * NEARLY:g} %",
                abs(one - other) <= NEARLY * other,
                f"{one:.4f} and {other:.4f}",
            ),
        ]
    return said
