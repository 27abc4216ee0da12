"""Figures 1b and 1c of Maddock et al.: calibrators that each client fits to its own rows alone.

For each network, whose clients are those that trained it, and each form of calibrator: the accuracy
on the rows that a client fitted it to, and on all test rows, each less that of the network.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np

from experiments.studies.claims import LOSS
from experiments.studies.rows import counted, where
from experiments.studies.spec import Rows, RowsClaim, Study, source_of
from fedcal import calibrators, datasets
from fedcal.core.numerics import Floats, Integers
from fedcal.strategies.server.outcome import Progress

NETWORKS = {"cifar10-cnn": "0.1", "cifar10-cnn-0.5": "0.5"}
"""Data -> beta of the partition that its network was trained with, most skewed first."""

FORMS: Mapping[str, type[calibrators.Calibrator]] = {
    "binning": calibrators.HistogramBinning,
    "BBQ": calibrators.BBQ,
    "matrix": calibrators.MatrixScaling,
    "vector": calibrators.VectorScaling,
    "order-preserving vector": calibrators.OrderPreservingVector,
    "temperature": calibrators.TemperatureScaling,
}
CHANGING = ("binning", "BBQ", "matrix", "vector")


def _changes(progress: Progress | None = None) -> Rows:
    """One row for each network and form; changes of accuracy are means over clients with rows."""
    found: Rows = []
    for name, form in counted([(n, f) for n in NETWORKS for f in FORMS], progress):
        data = datasets.load(source_of(name)).split(0)
        z, y, owner = map(np.asarray, (data.test_logits, data.test_labels, data.client))
        before, changes = _accuracy(z, y), []
        for client in np.unique(owner):
            own, labels = data.logits[owner == client], data.labels[owner == client]
            fitted = FORMS[form]().fit(own, labels)
            local = _accuracy(fitted.predict_proba(own), labels) - _accuracy(own, labels)
            changes.append((local, _accuracy(fitted.predict_proba(z), y) - before))
        own_rows, all_rows = np.mean(changes, axis=0).tolist()
        row = {"data": name, "beta": NETWORKS[name], "form": form, "accuracy": before}
        found.append(row | {"clients": len(changes), "own": own_rows, "all": all_rows})
    return found


def _accuracy(scores: Floats, labels: Integers) -> float:
    return float((scores.argmax(axis=1) == labels).mean())


def _claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield what section 4 reads off the figure."""
    for form in CHANGING:
        mine = where(found, form=form)
        losses = [-r["all"] for r in mine]
        words = ", ".join(f"{r['beta']} {r['own']:+.3f} / {r['all']:+.3f}" for r in mine)
        overfits = all(r["own"] > 0 > r["all"] + LOSS for r in mine[:1])
        yield f"{form}: a client's own fit overfits where beta = 0.1", overfits, words
        ordered = all(a > b for a, b in pairwise(losses))
        yield f"{form}: the more skew, the more accuracy is lost on all rows", ordered, words
    kept = [r for r in found if r["form"] not in CHANGING]
    unchanged = all(abs(r["all"]) < 1e-12 for r in kept)
    yield "Order-preserving vectors and temperatures change no accuracy", unchanged, ""


figure1 = Study(_changes, _claims)
