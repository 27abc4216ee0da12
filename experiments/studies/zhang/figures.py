"""Figures 1 and 4 to 7: two Gaussians, clip norms, noise, accuracy, label noise.

Each is a row for each training, as `tables.study` measures it, and its claims.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from experiments.studies.claims import all_of, larger, listed, ordered
from experiments.studies.rows import of_each, one, where
from experiments.studies.spec import Record, Rows, RowsClaim, Study
from experiments.studies.zhang import models
from experiments.studies.zhang.models import EPSILON, Task
from experiments.studies.zhang.tables import DP, MATTERS, NON_PRIVATE, above, study
from fedcal.core.numerics import Floats

# -- Figure 4 (a): the clip norm at a fixed epsilon ----------------------------------------------

LITTLE = 0.02
"""A change of accuracy that is marginal."""


def _clip_claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield the claims of section 4.3 on Figure 4 (a)."""
    *lines, plain = found
    falls = all_of(above(a, b, "ece") for a, b in pairwise(lines))
    text = f"at epsilon = {EPSILON:g} the ECE falls as the clip norm grows"
    yield text, falls, listed(lines, "ece", "clip")
    text = "without clipping and noise it is the smallest"
    yield ordered(text, lines, [plain], "ece", "clip", least=MATTERS)
    accuracies = [r["accuracy"] for r in lines]
    text = f"the clip norm changes the accuracy by less than {100 * LITTLE:g} points"
    yield text, max(accuracies) - min(accuracies) < LITTLE, listed(lines, "accuracy", "clip")


figure4a = Study(study("figure4a", 5), of_each(_clip_claims))

# -- Figure 1, and 4 (a) on its data: a private model is sure of most rows -----------------------

SURE, POINT = 0.95, 0.01
"""Confidences from here on are called near 1; what accuracies may differ by."""


def _sure(of: Task, facts: Record, probs_by_seed: Sequence[Floats]) -> Record:
    """`sure`, the share of test rows whose confidence is `SURE` or more."""
    return {"sure": float(np.mean([probs.max(axis=1) >= SURE for probs in probs_by_seed]))}


@of_each
def _gaussians_claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield the claims of the introduction, and of Figure 4 (a)."""
    private, plain = found[0], found[-1]
    near = abs(plain["accuracy"] - private["accuracy"]) <= POINT
    yield "accuracy without privacy is within one point", near, listed(found, "accuracy", "clip")
    text = f"at least twice as many confidences of the private model are {SURE:g} or more"
    yield ordered(text, [private], [plain], "sure", "clip", factor=2)
    yield from _clip_claims(found)


_on_mixture = study("figure1", 2, _sure, (models.MIXTURE,))
figure1 = Study(_on_mixture, _gaussians_claims)

# -- Figure 4 (c): noise without clipping, and clipping without noise ----------------------------
# Neither protects anybody: the noise is that of a clip norm which nothing was clipped to. So the
# library has no such option, and the study adds the noise itself (`models.Training.added`).

BOTH, CLIPPED, NOISED, NEITHER = "both (DP-SGD)", "clipping", "noise", "neither"
CAUSE = 0.8
"""Share of what DP-SGD adds to the ECE from which one of the two is called its cause."""


@of_each
def _parts_claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield the claims of section 4.3 on Figure 4 (c)."""
    of = {r["gradients"]: r for r in found}
    both, clipped, noised, neither = (of[k] for k in (BOTH, CLIPPED, NOISED, NEITHER))
    places, half = listed(found, "ece", "gradients"), noised["ece"] < both["ece"] / 2
    yield "noise without clipping has less than half of DP-SGD's ECE", half, places
    text = "noise without clipping has a higher accuracy than DP-SGD"
    yield ordered(text, [noised], [both], "accuracy", "gradients", least=MATTERS)
    adds = above(both, neither, "ece") is True
    most = clipped["ece"] - neither["ece"] >= CAUSE * (both["ece"] - neither["ece"])
    text = f"clipping alone adds at least {100 * CAUSE:g} % of what DP-SGD adds to it"
    yield text, most if adds else None, places if adds else f"it adds nothing: {places}"


figure4c = Study(study("figure4c", 3), _parts_claims)

# -- Figure 5: is it the accuracy? ECE and accuracy over epsilon, and at equal accuracy ----------

BUDGET = 8.0
NEAR = 0.01
"""Accuracies so near are equal."""


@of_each
def _stopped_claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield the claims of section 4.3 on both panels."""
    private, plain = (where(found, model=model) for model in ("DP", "non-private"))
    overall = max(plain, key=lambda r: r["epochs"])
    slope, start = np.polyfit([r["accuracy"] for r in private], [r["ece"] for r in private], 1)
    line = {"ece": float(start + slope * overall["accuracy"]), "epochs": "line at its accuracy:"}
    text = "without privacy the ECE is below the line through the private models of all epsilons, "
    text += "at its accuracy"
    yield ordered(text, [line], [overall], "ece", "epochs", least=MATTERS)
    mine = one(private, epsilon=BUDGET)
    equal = min(plain, key=lambda r: abs(r["accuracy"] - mine["accuracy"]))
    near = abs(equal["accuracy"] - mine["accuracy"]) <= NEAR
    yield (
        "stopped early at the private model's accuracy, the model without privacy still has a "
        "smaller ECE",
        above(mine, equal, "ece") if near else None,
        f"{equal['ece']:.4f} (accuracy {equal['accuracy']:.4f}, {equal['epochs']:g} epochs) "
        f"against {mine['ece']:.4f} ({mine['accuracy']:.4f})",
    )


figure5 = Study(study("figure5", 3), _stopped_claims)

# -- Figure 6: ECE and loss on training and on test rows -----------------------------------------

NEARLY = 0.1
"""Relative difference of train and test ECE up to which they are said to agree nearly."""


@of_each
def _rows_claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield the claims of section 4.3, and what recalibration without a split needs."""
    private, plain = (one(found, method=title) for title in (f"{DP}, epsilon = 8", NON_PRIVATE))
    both = [private, plain]
    for key, what in (("ece", "ECE"), ("nll", "loss")):
        less, more = (abs(r[key] - r[f"train {key}"]) for r in both)
        text = f"the difference of train and test {what} is smaller for the private model"
        shown = f"train {listed(both, f'train {key}', 'method')}; test "
        yield text, larger(more, less, MATTERS), shown + listed(both, key, "method")
    train, test = private["train ece"], private["ece"]
    yield (
        "the private model's ECE is larger on training and on test rows",
        all_of(above(private, plain, key) for key in ("train ece", "ece")),
        f"{train:.4f} and {test:.4f} against {plain['train ece']:.4f} and {plain['ece']:.4f}",
    )
    yield (
        f"the private model's train and test ECE are within {100 * NEARLY:g} %",
        abs(train - test) <= NEARLY * test,
        f"{train:.4f} and {test:.4f}",
    )


figure6 = Study(study("figure6", 5), _rows_claims)

# -- Figure 7: what the Bayes classifier may be sure of, and what a private model is -------------

DROPPED, MORE = "Non-private, dropout", 0.05
"""By how much a confidence exceeds the best classifier's before it is called too high."""


def _confident(of: Task, facts: Record, probs_by_seed: Sequence[Floats]) -> Record:
    """Compare this classifier's confidence with that of the best possible one.

    `best`: the most that a classifier which knows the true class may be confident of the noisy one;
    `over`: share of test rows with a confidence above it by `MORE`; `confidence`: mean.
    """
    tops = [probs.max(axis=1) for probs in probs_by_seed]
    best = 1 - facts["noise"] * (1 - 1 / of.classes)
    over = float(np.mean([top > best + MORE for top in tops]))
    return {"best": best, "over": over, "confidence": float(np.mean(tops))}


@of_each
def _noisy_claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield the claims of appendix B.4."""
    private, plain = (
        [r for r in where(found, what="model", method=title) if r["noise"]]
        for title in (DP, DROPPED)
    )
    shown = f"{listed(private, 'over', 'noise')}; without privacy {listed(plain, 'over', 'noise')}"
    yield (
        "with label noise the private model is surer than the best classifier may be, of more rows "
        "than the model without privacy",
        all_of(above(a, b, "over") for a, b in zip(private, plain, strict=True)),
        shown,
    )
    most = private[-1]
    text = f"with {most['noise']:g} of the labels drawn anew it is so of most rows"
    yield text, most["over"] > 0.5, f"mean confidence {most['confidence']:.3f}"


figure7 = Study(study("figure7", 2, _confident), _noisy_claims)
