"""Exact numbers of a simulation beside what was released: for the researcher, and no release."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedcal.evaluation.findings import KEYS
from fedcal.evaluation.page import MOST_GROUPS, heading, shown
from fedcal.pages import Intervals, Part, Table

NO_RELEASE = (
    "Exact numbers of a simulation, for the researcher's eyes: no release, and not private."
)

_VIEWS = {key: key.replace("metrics_", "").replace("metrics", "model") for key in KEYS.values()}


def exact_parts(judged: Mapping[str, Any]) -> list[Part]:
    """Tables and figures of the keys `exact` and `clients` of a result; [] where it has none."""
    found: list[Part] = []
    for key, values in judged.get("exact", {}).items():
        rows = [
            (heading(name), _text(name, judged[key][name]["value"]), _text(name, value))
            for name, value in values.items()
        ]
        found.append(
            Table(
                f"Exact values, {_VIEWS[key]}",
                ("metric", "released", "exact"),
                tuple(rows),
                NO_RELEASE,
            )
        )
    clients: Mapping[str, Any] = judged.get("clients", {})
    for metric, title in (("accuracy", "Accuracy"), ("gap", "Mean score less outcome")):
        chart = _chart(clients, metric, f"{title} of each client, exact")
        found += [chart] if chart else []
    return found


def _text(metric: str, value: float | None) -> str:
    return "drowned by noise" if value is None else shown(metric, value)


def _chart(clients: Mapping[str, Any], metric: str, title: str) -> Intervals | None:
    names = sorted(clients, key=lambda name: -abs(_first(clients[name])["gap"]))[:MOST_GROUPS]
    if not names:
        return None
    note = NO_RELEASE
    if len(clients) > len(names):
        names_of = f"{len(names)} of {len(clients)} clients"
        note = f"The {names_of} whose mean score is farthest from the outcome. {note}"
    kept = [name for name in clients if name in set(names)]
    views = [key for key in KEYS.values() if key in clients[kept[0]]]

    def line(name: str, key: str) -> tuple[str, float, float, float]:
        value = 100 * clients[name][key][metric]
        return f"{name} ({clients[name]['rows']:,})", value, value, value

    series = {_VIEWS[key]: tuple(line(name, key) for name in kept) for key in views}
    return Intervals(
        title, heading(metric), series, {"perfect": 0.0} if metric == "gap" else {}, note
    )


def _first(client: Mapping[str, Any]) -> Mapping[str, float]:
    return next(told for key, told in client.items() if key != "rows")
