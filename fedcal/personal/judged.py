"""What recalibration at home is worth to each site of a simulation: exact numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedcal.calibrators import Identity
from fedcal.core.pages import Part, Table
from fedcal.core.shards import Shards
from fedcal.core.types import Floats
from fedcal.metrics.clients import MOST_CLIENTS
from fedcal.metrics.standard import summary
from fedcal.personal.at_site import calibrator_of, cross_validated, recalibrated
from fedcal.personal.prior import SitePrior
from fedcal.storage.artifact import Artifact, Holdout

LOSS = 0.02
"""Rise of the log loss from which on a site is harmed."""

TESTED, FOLDS = "test rows of each site", "own rows, out of fold"

MOST_ROWS = 30
"""Of the table of sites: those that fared worst."""


def judged_at_home(
    artifact: Artifact, test: Holdout, priors: Mapping[str, SitePrior], subject_rows: int = 0
) -> dict[str, Any]:
    """Let each site of a simulation recalibrate on its own rows, and judge that.

    On the test rows of the same sites, where somebody says whose these are; else on the sites' own
    rows out of fold. A site's prior knows nothing of its own rows, so nothing leaks. For the
    researcher's eyes: in a deployment these numbers stay at the sites.

    Parameters
    ----------
    artifact
        whose priors they are; judged once
    test
        with the sites' rows, `fit`; {} without
    priors
        name of a site -> its prior; "" = of all others
    subject_rows
        see `Shards.weights`

    Returns
    -------
    dict
        `before`, `after`: metrics of all judged rows; `score`; and `personal`: `sites` (name ->
        `rows`, `taken`, `risk`, and where rows judge it `nll_before`, `nll_after`, `harmed`), how
        many of them have `taken` it, `kept` the model, are `harmed`, and what they were `judged_on`
    """
    if test.fit is None:
        return {}
    if artifact not in test.kept:
        test.kept[artifact] = _judged(test, test.fit, priors, subject_rows)
    found: dict[str, Any] = test.kept[artifact]
    return found


def _judged(
    test: Holdout, fit: Shards, priors: Mapping[str, SitePrior], subject_rows: int
) -> dict[str, Any]:
    each = [priors.get(name, priors[""]) for name in fit.names]
    weights = fit.weights(subject_rows) if subject_rows else None
    home = recalibrated(fit, each, weights)
    tested = test.owner is not None and test.names == fit.names
    if test.owner is not None and tested:
        before, labels, owner = test.probs, test.labels, test.owner
        after = before.copy()
        for k in np.flatnonzero(home.taken):
            of = calibrator_of(home.parameters[k], fit.classes, fit.input)
            after[owner == k] = of.calibrated(test.logits[owner == k])
    else:
        before, labels, owner = (
            Identity().fit(fit.logits, fit.labels).calibrated(fit.logits),
            fit.labels,
            fit.owner,
        )
        after = cross_validated(fit, each, weights)[0]
    rows = np.bincount(owner, minlength=fit.clients)
    losses = [_loss(p, labels, owner, rows) for p in (before, after)]
    sites = {
        name: {
            "rows": int(fit.rows[k]),
            "taken": bool(home.taken[k]),
            "risk": float(home.risk[k]),
            **(_told(*(float(loss[k]) for loss in losses)) if rows[k] else {}),
        }
        for k, name in enumerate(fit.names)
    }
    kept = dict(list(sites.items())[:MOST_CLIENTS])
    return {
        "before": summary(before, labels),
        "after": summary(after, labels),
        "score": "positive" if fit.classes == 2 else "confidence",
        "personal": {
            "sites": kept,
            "taken": sum(one["taken"] for one in sites.values()),
            "kept": sum(not one["taken"] for one in sites.values()),
            "harmed": sum(one.get("harmed", False) for one in sites.values()),
            "judged_on": TESTED if tested else FOLDS,
        },
    }


def _loss(probs: Floats, labels: Any, owner: Any, rows: Any) -> Floats:
    """Mean log loss of each site's rows, (S,)."""
    of_label = np.maximum(probs[np.arange(len(labels)), labels], 1e-12)
    return np.asarray(np.bincount(owner, -np.log(of_label), len(rows)) / np.maximum(rows, 1))


def _told(before: float, after: float) -> dict[str, Any]:
    return {"nll_before": before, "nll_after": after, "harmed": after > before + LOSS}


def sites_table(judged: Mapping[str, Any]) -> list[Part]:
    """Each site's decision and log loss, those that fared worst first."""
    if "personal" not in judged:
        return []
    told = judged["personal"]
    sites = told["sites"]

    def change(name: str) -> float:
        one = sites[name]
        return float(one.get("nll_before", 0.0) - one.get("nll_after", 0.0))

    rows = tuple(
        (
            name,
            sites[name]["rows"],
            "recalibrates" if sites[name]["taken"] else "keeps the model",
            f"{100 * sites[name]['risk']:.0f}",
            *(_shown(sites[name].get(f"nll_{part}")) for part in ("before", "after")),
            "worse" if sites[name].get("harmed") else "",
        )
        for name in sorted(sites, key=change)[:MOST_ROWS]
    )
    note = (
        f"Judged on {told['judged_on']}. Risk is the probability, by its own rows and prior, that "
        f"its log loss rises by more than {LOSS:g}; worse is by as much. Exact numbers of a "
        "simulation, for the researcher's eyes: in a deployment they stay at the site."
    )
    if len(rows) < len(sites):
        note = f"The {len(rows)} of {len(sites)} sites that fared worst. {note}"
    columns = ("site", "rows", "at home", "risk, %", "log loss before", "log loss after", "")
    return [Table("Recalibration at home", columns, rows, note)]


def _shown(loss: float | None) -> str:
    return "" if loss is None else f"{loss:.3f}"
