"""What a trained model is worth on test rows, as tables and figures: its card.

All of it is exact, for the researcher's eyes: no private release. How many gradients are clipped is
told of test rows, too: of the training rows it is a sum over private rows, and to release it would
take noise, and budget, of its own in every step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.pages import Curve, Part, Table
from fedcal.core.types import Floats, Integers
from fedcal.evaluation.pages.page import heading
from fedcal.metrics import Reliability, summary
from fedcal.metrics.binning import bin_index
from fedcal.metrics.buckets import check_score
from fedcal.metrics.standard import BINS
from fedcal.queries import Gradients
from fedcal.storage.artifact import Holdout
from fedcal.training.network import Clipping

EXACT = "Exact numbers on test rows, for the researcher's eyes: no private release."

_MOST_NUMBERS = 2**22  # of gradients of single rows at once

MOST_LINES = 40
"""Of the tables of classes and of groups."""

_NAMES = {
    "accuracy": "accuracy, %",
    "ece": "top-label ECE of 15 bins, %",
    "classwise_ece": "classwise ECE, %",
    "gap": "",
    "nll": "NLL, nats",
    "brier": "Brier score",
}
"""Metric -> heading; that of the gap is of the score that a model has."""


def scored(probs: Floats, labels: Integers) -> dict[str, float]:
    """Metrics of test rows: those of `fedcal.metrics.summary`, and one more.

    `gap` is the mean confidence minus the accuracy, of two classes the mean probability of class 1
    minus its share; below 0 the model predicts too low.
    """
    metrics, top = summary(probs, labels), probs.max(axis=1)
    right = probs.argmax(axis=1) == labels
    gap = probs[:, 1] - labels if probs.shape[1] == 2 else top - right
    return {**metrics, "gap": float(gap.mean())}


def clipped_share(query: Gradients, inputs: NDArray[Any], labels: Integers) -> float:
    """Share of rows whose gradient is longer than what the query leaves as it is.

    Parameters
    ----------
    query
        with the weights; with "global" clipping the longer rows are left out, else shortened
    inputs, labels
        (n, ...), (n,) test rows
    """
    network, w = query.architecture, query.w
    limit = query.reach if query.clipping == "global" else query.clip
    at_once = max(1, _MOST_NUMBERS // len(w))
    longer = 0
    for start in range(0, len(labels), at_once):
        rows = slice(start, start + at_once)
        x, y = network.prepared(inputs[rows]), labels[rows]
        alone, free = np.arange(len(y) + 1), Clipping(query.clip, "none")
        steps = network.steps(w, x, y, alone, query.classes, free, query.grid)
        longer += int((np.linalg.norm(steps * query.grid, axis=1) > limit).sum())
    return longer / len(labels)


def clipping_part(shares: Sequence[tuple[int, float]], query: Gradients) -> Curve:
    """(round, `clipped_share`) as a figure."""
    points = tuple((float(number), 100 * share) for number, share in shares)
    what = (
        "Left out are gradients of a norm above Z = "
        if query.clipping == "global"
        else ("Shortened are gradients of a norm above C = ")
    )
    limit = query.reach if query.clipping == "global" else query.clip
    return Curve(
        "Clipped gradients",
        "round",
        "test rows, %",
        {"clipped": points},
        note=f"{what}{limit:g}. {EXACT} Of the training rows it is not released.",
    )


def card_parts(looks: Mapping[str, Floats], test: Holdout) -> list[Part]:
    """Return the card's parts, from top to bottom.

    Parameters
    ----------
    looks
        name ("model", "recalibrated") -> (n, c) probabilities of the test rows
    test
        their labels and groups
    """
    metrics = {name: scored(probs, test.labels) for name, probs in looks.items()}
    named = {**_NAMES, "gap": heading("gap", check_score("", test.probs.shape[1]))}
    rows = tuple(
        (name, *(_shown(name, metrics[look][key]) for look in looks)) for key, name in named.items()
    )
    records = {name: Reliability.of(probs, test.labels) for name, probs in looks.items()}
    parts: list[Part] = [
        Table("Test rows", ("metric", *looks), rows, f"{len(test.labels):,} rows. {EXACT}"),
        _reliability(records),
        _confidence(looks),
        _by_class(records),
    ]
    if test.group is not None:
        parts.append(_by_group(looks, test, test.group))
    return parts


def _shown(name: str, value: float) -> str:
    return f"{100 * value:.2f}" if name.endswith("%") else f"{value:.4f}"


def _reliability(records: Mapping[str, Reliability]) -> Curve:
    series = {}
    for name, one in records.items():
        seen = np.flatnonzero(one.count)
        share = one.count[seen]
        x, y = one.sum_confidence[seen] / share, one.sum_correct[seen] / share
        series[name] = tuple(zip((100 * x).tolist(), (100 * y).tolist(), strict=True))
    return Curve(
        "Reliability",
        "confidence, %",
        "accuracy, %",
        series,
        references={"as confident as right": ((0.0, 0.0), (100.0, 100.0))},
        note="Of the predicted class, in 15 bins; below the diagonal the model is over-confident.",
    )


def _confidence(looks: Mapping[str, Floats]) -> Curve:
    """Return the distribution of confidences, bars as steps."""
    series = {}
    for name, probs in looks.items():
        top = probs.max(axis=1)
        share = 100 * np.bincount(bin_index(top, BINS), minlength=BINS) / len(top)
        edges = np.linspace(0.0, 100.0, BINS + 1)
        points = [(float(e), float(s)) for k, s in enumerate(share) for e in edges[k : k + 2]]
        series[name] = tuple(points)
    return Curve(
        "How confident the model is",
        "confidence, %",
        "test rows, %",
        series,
        note="Clipping polarises: it fills both ends (Zhang et al., Figure 3). 15 bins.",
    )


def _by_class(records: Mapping[str, Reliability]) -> Table:
    """Each class against the rest; of many those that are worst."""
    rows = next(iter(records.values())).rows
    errors = {
        name: np.abs(one.class_sum_confidence - one.class_sum_correct).sum(axis=1) / rows
        for name, one in records.items()
    }
    counts = next(iter(records.values())).class_sum_correct.sum(axis=1)
    worst = np.argsort(-next(iter(errors.values())), kind="stable")[:MOST_LINES]
    lines = tuple(
        (str(k), f"{counts[k]:,}", *(f"{100 * e[k]:.2f}" for e in errors.values()))
        for k in np.sort(worst).tolist()
    )
    note = "Each class against the rest, in 15 bins; classes are counted from 0."
    if len(lines) < len(counts):
        note = f"The {len(lines)} of {len(counts)} with the largest error. {note}"
    return Table("ECE by class", ("class", "rows", *(f"{n}, %" for n in records)), lines, note)


def _by_group(looks: Mapping[str, Floats], test: Holdout, group: Integers) -> Table:
    lines = []
    for k, name in enumerate(test.group_names[:MOST_LINES]):
        mine = group == k
        if mine.any():
            metrics = [scored(probs[mine], test.labels[mine]) for probs in looks.values()]
            texts = (f"{100 * one[key]:.2f}" for one in metrics for key in ("accuracy", "ece"))
            lines.append((name, f"{mine.sum():,}", *texts))
    columns = tuple(f"{look}: {what}" for look in looks for what in ("accuracy, %", "ECE, %"))
    note = "The ECE of few rows is large by chance alone."
    return Table("By group", ("group", "rows", *columns), tuple(lines), note)
