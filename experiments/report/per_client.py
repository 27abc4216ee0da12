"""Exact numbers of each client, which a simulation shows to the researcher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedcal.core.pages import Intervals, Part
from fedcal.evaluation.by_group import change_table
from fedcal.evaluation.pages.page import MOST_GROUPS, heading

NO_RELEASE = "Exact numbers of a simulation, for the researcher's eyes: no private release."

_SERIES = {"metrics": "model", "metrics_after": "after", "metrics_other": "other model"}
_CHARTS = {
    "accuracy": ("Accuracy of each client, exact", {}),
    "gap": ("Calibration in the large of each client, exact", {"perfect": 0.0}),
}


def client_parts(result: Mapping[str, Any]) -> list[Part]:
    """Accuracy and calibration in the large of each client's rows, by what they are called.

    Parameters
    ----------
    result
        `clients`, `score`, and of a calibrator `clients_change`, of `result.json`
    """
    clients, score = result.get("clients", {}), str(result.get("score", ""))
    if not clients:
        return []
    changed = result.get("clients_change", {})
    tables: list[Part] = [change_table(changed, "client")] if changed.get("sites") else []
    first, *_ = keys = [key for key in next(iter(clients.values())) if key != "rows"]
    worst = sorted(clients, key=lambda name: -abs(clients[name][first]["gap"]))[:MOST_GROUPS]
    shown_clients = {name: clients[name] for name in clients if name in set(worst)}
    note = NO_RELEASE
    if len(shown_clients) < len(clients):
        note = (
            f"The {len(shown_clients)} of {len(clients):,} clients whose mean score is farthest "
            f"from the observed rate. {note}"
        )

    def line(name: str, key: str, metric: str) -> tuple[str, float, float, float]:
        value = 100 * shown_clients[name][key][metric]
        return f"{name} ({shown_clients[name]['rows']:,})", value, value, value

    return tables + [
        Intervals(
            title,
            heading(metric, score),
            {
                _SERIES.get(key, key): tuple(line(n, key, metric) for n in shown_clients)
                for key in keys
            },
            references,
            note,
        )
        for metric, (title, references) in _CHARTS.items()
    ]
