"""Table 5: regularisers without privacy beside DP-SGD: weight decay and early stopping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fedcal.experiments.research.studies.claims import all_of
from fedcal.experiments.research.studies.spec import Record, Rows, RowsClaim
from fedcal.experiments.research.studies.zhang.grid import DP, NON_PRIVATE, measured
from fedcal.experiments.research.studies.zhang.models import PLAIN, Training
from fedcal.experiments.research.studies.zhang.scores import above
from fedcal.experiments.research.studies.zhang.tasks import tasks
from fedcal.strategies.server.outcome import Progress

EPSILON, SEEDS = 8.0, 3
DECAYS, STOPS = (1e-4, 1e-3, 1e-2, 1e-1), (2.0, 4.0, 6.0, 8.0)
"""The paper's values."""

METHODS = {
    DP: Training(EPSILON),
    NON_PRIVATE: PLAIN,
    **{f"weight decay {decay:g}": replace(PLAIN, weight_decay=decay) for decay in DECAYS},
    **{f"early stopping ({stop:g} epochs)": replace(PLAIN, epochs=stop) for stop in STOPS},
}
REGULAR = [title for title in METHODS if title not in (DP, NON_PRIVATE)]


def rows(
    data: Sequence[str] | None = None, seeds: int = SEEDS, progress: Progress | None = None
) -> Rows:
    """All regularisers on all data.

    Returns
    -------
    list of dict
        what = "method": `method`, see `grid.over_seeds`
    """
    todo = [(of, title, how) for of in tasks(data) for title, how in METHODS.items()]
    return measured("method", "method", todo, seeds, progress)


def claims(found: Sequence[Record]) -> list[RowsClaim]:
    """What section 4.3 says, of each of the data."""
    said: list[RowsClaim] = []
    for name in dict.fromkeys(r["data"] for r in found):
        of = {r["method"]: r for r in found if r["data"] == name}
        private = of[DP]
        worse = [t for t in REGULAR if above(private, of[t], "ece") is False]
        sure = above(private, {"gap": 0.0}, "gap") is True
        most = max(REGULAR, key=lambda t: of[t]["gap"])
        said += [
            (
                f"{name}: every regulariser has a smaller ECE than DP-SGD",
                all_of(above(private, of[t], "ece") for t in REGULAR),
                f"DP-SGD {private['ece']:.4f}; "
                + (
                    ", ".join(f"{t} {of[t]['ece']:.4f}" for t in worse)
                    or f"largest {max(of[t]['ece'] for t in REGULAR):.4f}"
                ),
                "not for weight decay .1, dropout .1 and 8 epochs, one model: .1874 against .166",
            ),
            (
                f"{name}: no regulariser makes the model as over-confident as DP-SGD does",
                all_of(above(private, of[t], "gap") for t in REGULAR) if sure else None,
                ("" if sure else "DP-SGD's is not over-confident; ")
                + f"mean confidence less accuracy: DP-SGD {private['gap']:+.4f}, {most} "
                f"{of[most]['gap']:+.4f}",
            ),
        ]
    return said
