"""Exact numbers of each client, which a simulation shows to the researcher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedcal.evaluation.page import MOST_GROUPS, heading
from fedcal.pages import Intervals, Part

NO_RELEASE = "Exact numbers of a simulation, for the researcher's eyes: no private release."

_SERIES = {"metrics": "model", "metrics_after": "after", "metrics_other": "other model"}
_CHARTS = {
    "accuracy": ("Accuracy of each client, exact", {}),
    "gap": ("Calibration in the large of each client, exact", {"perfect": 0.0}),
}


def client_parts(clients: Mapping[str, Any], score: str) -> list[Part]:
    """Accuracy and calibration in the large of each client's rows, by what they are called.

    Parameters
    ----------
    clients
        as `result.json` has them
    score
        what the gap is of: "positive" (the positive class) or "confidence" (the top label)
    """
    if not clients:
        return []
    first, *_ = keys = [key for key in next(iter(clients.values())) if key != "rows"]
    worst = sorted(clients, key=lambda name: -abs(clients[name][first]["gap"]))[:MOST_GROUPS]
    kept = {name: clients[name] for name in clients if name in set(worst)}
    note = NO_RELEASE
    if len(kept) < len(clients):
        note = (
            f"The {len(kept)} of {len(clients)} clients whose mean score is farthest from what "
            f"came true. {note}"
        )

    def line(name: str, key: str, metric: str) -> tuple[str, float, float, float]:
        value = 100 * kept[name][key][metric]
        return f"{name} ({kept[name]['rows']:,})", value, value, value

    return [
        Intervals(
            title,
            heading(metric, score),
            {_SERIES.get(key, key): tuple(line(n, key, metric) for n in kept) for key in keys},
            references,
            note,
        )
        for metric, (title, references) in _CHARTS.items()
    ]
