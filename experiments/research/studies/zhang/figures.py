"""Figures 1 and 4 to 7: two Gaussians, clip norms, noise, accuracy, training rows, label noise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from fedcal.core.numerics import Floats
from fedcal.experiments.report.figures.drawing import Panel, Sheet, bars, curve
from fedcal.experiments.research.studies.claims import all_of, larger
from fedcal.experiments.research.studies.rows import grouped, of_each, one, where
from fedcal.experiments.research.studies.spec import Record, Rows, RowsClaim, Study
from fedcal.experiments.research.studies.zhang.models import (
    CLIP,
    EPSILON,
    LR,
    MIXTURE_HOW,
    PLAIN,
    STEPS,
    Training,
    mixture_at,
    mixture_plain,
    multiplier,
)
from fedcal.experiments.research.studies.zhang.scores import (
    DP,
    MATTERS,
    NON_PRIVATE,
    above,
    study,
    trained_rows,
)
from fedcal.experiments.research.studies.zhang.tasks import MIXTURE, Task, task
from fedcal.strategies.server.outcome import Progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BARS = 10
LOOKS = ("correct", "under")
"""Of histograms that share a panel: filled, and hatched on top."""


def bars_of(shown: Floats, **facts: object) -> Rows:
    """Rows of what = "bar": `at` and `share` of each of `BARS` from 0 to 1."""
    counts, edges = np.histogram(shown, BARS, (0.0, 1.0))
    return [
        {"what": "bar", **facts, "at": round(float(at), 6), "share": float(share)}
        for at, share in zip(edges[:-1], counts / counts.sum(), strict=True)
    ]


def histogram(title: str, note: str, axis: str, series: Mapping[str, Rows]) -> Panel:
    """Shares of rows, of `at` and `share`.

    Parameters
    ----------
    axis
        what is counted by
    series
        of `LOOKS` -> bars from 0 to 1
    """

    def plot(ax: Axes) -> None:
        ax.set(xlabel=axis, ylabel="share of rows", xlim=(0, 1), ylim=(0, 1))
        for look, rows in series.items():
            left, share = (np.array([r[key] for r in rows]) for key in ("at", "share"))
            bars(ax, look, left, left + 1 / len(rows), np.zeros(len(rows)), share)

    said = "; ".join(
        f"{look}: " + ", ".join(f"from {r['at']:g} {100 * r['share']:.1f} %" for r in rows)
        for look, rows in series.items()
    )
    return Panel(title, plot, f"{title}, {note}. {said}.", aspect=0.75, note=note)


def ece_by(
    axis: str, key: str, title: str, found: Rows, looks: Mapping[str, Mapping[str, object]]
) -> Sheet:
    """Draw a panel for each data set: ECE by a number of the rows.

    Parameters
    ----------
    axis, key
        what the number is called; of rows
    looks
        of `style.LINES` -> facts of the rows of a line
    """

    def panel(name: str, mine: Rows) -> Panel:
        series = {look: where(mine, **facts) for look, facts in looks.items()}

        def plot(ax: Axes) -> None:
            ax.set(xlabel=axis, ylabel="ECE")
            for look, rows in series.items():
                line = sorted(rows, key=lambda r: float(r[key]))
                curve(ax, look, [float(r[key]) for r in line], [r["ece"] for r in line])
            ax.set_ylim(bottom=0)

        said = "; ".join(
            f"{look}: " + ", ".join(f"{float(r[key]):.4g}: {r['ece']:.4f}" for r in rows)
            for look, rows in series.items()
        )
        return Panel(name, plot, f"{name}: ECE by {axis}. {said}.", aspect=0.75)

    panels = tuple(panel(name, mine) for (name,), mine in grouped(found, "data").items())
    return Sheet(title, len(panels), panels)


# -- Figure 1: a private model is sure of most rows ----------------------------------------------

SURE = 0.95
"""Confidences from here on are called near 1."""

POINT = 0.01


def _sure(of: Task, facts: Record, told: Sequence[Floats]) -> tuple[Record, Rows]:
    sure = float(np.mean([probs.max(axis=1) >= SURE for probs in told]))
    return {"sure": sure}, bars_of(told[0][:, 1], model=facts["model"])


def _gaussians(seeds: int = 5, progress: Progress | None = None) -> Rows:
    """Both models, and histograms of their probability of the second class.

    Returns
    -------
    list of dict
        what = "model": `model`, see `scores.over_seeds`; `sure`, the share of test rows whose
        confidence is `SURE` or more. what = "bar": `model`, `at`, `share`; of seed 0
    """
    both = {NON_PRIVATE: mixture_plain(), DP: MIXTURE_HOW}
    trainings = [({"what": "model", "model": title}, how) for title, how in both.items()]
    return trained_rows([task(MIXTURE)], lambda of: trainings, seeds, progress, _sure)


def _gaussians_claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield the claims of the introduction."""
    plain, private = (one(found, what="model", model=title) for title in (NON_PRIVATE, DP))
    yield (
        "The accuracies are within one point",
        abs(plain["accuracy"] - private["accuracy"]) <= POINT,
        f"{100 * private['accuracy']:.2f} % and {100 * plain['accuracy']:.2f} %",
    )
    yield (
        f"At least twice as many confidences of the private model are {SURE:g} or more",
        private["sure"] >= 2 * plain["sure"],
        f"{100 * private['sure']:.1f} % of the rows against {100 * plain['sure']:.1f} %",
    )
    yield (
        "The private model's ECE is larger",
        above(private, plain, "ece"),
        f"{private['ece']:.4f} against {plain['ece']:.4f}",
    )


def _gaussians_sheet(found: Rows) -> Sheet:
    """Probabilities of the second class, of both models."""
    axis = "probability of the second class"
    panels = tuple(
        histogram(title, MIXTURE, axis, {LOOKS[0]: where(found, what="bar", model=title)})
        for title in (NON_PRIVATE, DP)
    )
    return Sheet("What the models say of the test rows", 2, panels)


figure1 = Study(_gaussians, _gaussians_claims, _gaussians_sheet)

# -- Figure 4 (a): the clip norm at a fixed epsilon ----------------------------------------------

CLIPS = (0.1, 0.3, 1.0)
"""On features; lr times the clip norm stays the same."""

LITTLE = 0.02
"""A change of accuracy that is called marginal."""


def _clips(of: Task) -> Iterator[tuple[Record, Training]]:
    """Yield what = "clip" with `clip`; "none" is without clipping and noise."""
    if of.name == MIXTURE:
        found = {f"{clip:g}": mixture_at(clip) for clip in STEPS} | {"none": mixture_plain()}
    else:
        found = {f"{clip:g}": Training(EPSILON, clip=clip, lr=CLIP * LR / clip) for clip in CLIPS}
        found["none"] = PLAIN
    yield from (({"what": "clip", "clip": clip}, how) for clip, how in found.items())


@of_each
def _clip_claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield the claims of section 4.3 on Figure 4 (a)."""
    *lines, plain = found
    places = ", ".join(f"{r['clip']}: {r['ece']:.4f}" for r in found)
    accuracies = [r["accuracy"] for r in lines]
    yield (
        f"at epsilon = {EPSILON:g} the ECE falls as the clip norm grows",
        all_of(above(a, b, "ece") for a, b in pairwise(lines)),
        places,
    )
    yield (
        "without clipping and noise it is the smallest",
        all_of(above(r, plain, "ece") for r in lines),
        places,
    )
    yield (
        f"the clip norm changes the accuracy by less than {100 * LITTLE:g} points",
        max(accuracies) - min(accuracies) < LITTLE,
        ", ".join(f"{r['clip']}: {100 * r['accuracy']:.2f} %" for r in lines),
    )


def _clip_sheet(found: Rows) -> Sheet:
    clipped = [r for r in found if r["clip"] != "none"]
    title = f"ECE by clip norm at epsilon = {EPSILON:g}"
    return ece_by("clip norm", "clip", title, clipped, {"m0": {}})


figure4a = Study(study(_clips, 5, mixture=True), _clip_claims, _clip_sheet)

# -- Figure 4 (c): noise without clipping, and clipping without noise ----------------------------
# Neither protects anybody: the noise is that of a clip norm which nothing was clipped to. So the
# library has no such option, and the study adds the noise itself (`models.Training.added`).

BOTH, CLIPPED, NOISED, NEITHER = "both (DP-SGD)", "clipping", "noise", "neither"
CAUSE = 0.8
"""Share of what DP-SGD adds to the ECE from which one of the two is called its cause."""


def _parts(of: Task) -> Iterator[tuple[Record, Training]]:
    """Yield what = "part" with `gradients`, the treatment of gradients."""
    mixed = of.name == MIXTURE
    both, plain = (MIXTURE_HOW, mixture_plain()) if mixed else (Training(EPSILON), PLAIN)
    found = {
        BOTH: both,
        CLIPPED: replace(both, epsilon=math.inf),
        NOISED: replace(plain, added=multiplier(of, both) * both.clip),
        NEITHER: plain,
    }
    yield from (({"what": "part", "gradients": title}, how) for title, how in found.items())


@of_each
def _parts_claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield the claims of section 4.3 on Figure 4 (c)."""
    of = {r["gradients"]: r for r in found}
    ece = {title: line["ece"] for title, line in of.items()}
    added, adds = ece[BOTH] - ece[NEITHER], above(of[BOTH], of[NEITHER], "ece")
    places = ", ".join(f"{title} {value:.4f}" for title, value in ece.items())
    yield (
        "noise without clipping has less than half of DP-SGD's ECE",
        ece[NOISED] < ece[BOTH] / 2,
        places,
    )
    yield (
        "noise without clipping has a higher accuracy than DP-SGD",
        above(of[NOISED], of[BOTH], "accuracy"),
        f"{100 * of[NOISED]['accuracy']:.2f} % against {100 * of[BOTH]['accuracy']:.2f} %",
    )
    yield (
        f"clipping alone adds at least {100 * CAUSE:g} % of what DP-SGD adds to it",
        ece[CLIPPED] - ece[NEITHER] >= CAUSE * added if adds is True else None,
        places if adds is True else f"it adds nothing: {places}",
    )


figure4c = Study(study(_parts, 3, mixture=True), _parts_claims)

# -- Figure 5: is it the accuracy? ECE and accuracy over epsilon, and at equal accuracy ----------

BUDGET = 8.0
EPSILONS = (1.0, 3.0, BUDGET)
STOPS = (0.1, 0.5, 2.0)
"""Epochs after which training without privacy is stopped early."""

NEAR = 0.01
"""Accuracies that are called equal."""


def _stopped(of: Task) -> Iterator[tuple[Record, Training]]:
    """Yield what = "model" with `model` ("DP", "non-private"), `epsilon`, `epochs`."""
    for epsilon in EPSILONS:
        how = Training(epsilon)
        yield {"what": "model", "model": "DP", "epsilon": epsilon, "epochs": how.epochs}, how
    for epochs in (*STOPS, PLAIN.epochs):
        facts = {"what": "model", "model": "non-private", "epsilon": None, "epochs": epochs}
        yield facts, replace(PLAIN, epochs=epochs)


@of_each
def _stopped_claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield the claims of section 4.3 on both panels."""
    private, plain = (where(found, model=model) for model in ("DP", "non-private"))
    whole = max(plain, key=lambda r: r["epochs"])
    at, ece = (np.array([r[key] for r in private]) for key in ("accuracy", "ece"))
    slope, start = np.polyfit(at, ece, 1)
    line = float(start + slope * whole["accuracy"])
    mine = one(private, epsilon=BUDGET)
    equal = min(plain, key=lambda r: abs(r["accuracy"] - mine["accuracy"]))
    apart = abs(equal["accuracy"] - mine["accuracy"])
    yield (
        "without privacy the ECE is below the line through the private models of all epsilons, "
        "at its accuracy",
        above({"ece": line}, whole, "ece"),
        f"{whole['ece']:.4f} against {line:.4f}, at an accuracy of {whole['accuracy']:.4f}",
    )
    yield (
        "stopped early at the private model's accuracy, the model without privacy still has a "
        "smaller ECE",
        above(mine, equal, "ece") if apart <= NEAR else None,
        f"{equal['ece']:.4f} (accuracy {equal['accuracy']:.4f}, {equal['epochs']:g} epochs) "
        f"against {mine['ece']:.4f} ({mine['accuracy']:.4f})",
    )


def _stopped_sheet(found: Rows) -> Sheet:
    looks = {"m0": "DP", "m1": "non-private"}
    lines = {look: {"model": model} for look, model in looks.items()}
    sheet = ece_by("accuracy", "accuracy", "ECE and accuracy", found, lines)
    return replace(sheet, legend=tuple(looks.items()))


figure5 = Study(study(_stopped, 3), _stopped_claims, _stopped_sheet)

# -- Figure 6: ECE and loss on training and on test rows -----------------------------------------

ON_ROWS = {
    f"{DP}, epsilon = 8": Training(8.0),
    f"{DP}, epsilon = 3": Training(3.0),
    NON_PRIVATE: PLAIN,
}
NEARLY = 0.1
"""Relative difference of train and test ECE up to which they are said to agree nearly."""


@of_each
def _rows_claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield the claims of section 4.3, and what recalibration without a split needs."""
    titles = next(iter(ON_ROWS)), NON_PRIVATE
    private, plain = (one(found, method=title) for title in titles)
    for key, what in (("ece", "ECE"), ("nll", "loss")):
        gaps = [abs(r[key] - r[f"train {key}"]) for r in (private, plain)]
        yield (
            f"the difference of train and test {what} is smaller for the private model",
            larger(gaps[1], gaps[0], MATTERS),
            ", ".join(
                f"{r['method']}: {r[f'train {key}']:.4f} and {r[key]:.4f}" for r in (private, plain)
            ),
        )
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


figure6 = Study(
    study(lambda of: (({"what": "method", "method": t}, how) for t, how in ON_ROWS.items()), 5),
    _rows_claims,
)

# -- Figure 7: what the Bayes classifier may be sure of, and what a private model is -------------

SHARES = (0.0, 0.3, 0.6)
"""Of the training labels that are drawn anew, uniformly."""

NOISY = {DP: Training(8.0), NON_PRIVATE: PLAIN}
MORE = 0.05
"""By how much a confidence exceeds the best classifier's before it is called too high."""


def _noisy(of: Task) -> Iterator[tuple[Record, Training]]:
    """Yield what = "model" with `method`, `noise`, and the values of `_confident`.

    ECE and accuracy are of the test rows' own labels.
    """
    for title, how in NOISY.items():
        for share in SHARES:
            facts = {"what": "model", "method": title, "noise": share}
            yield facts, replace(how, label_noise=share)


def _confident(of: Task, facts: Record, told: Sequence[Floats]) -> tuple[Record, Rows]:
    """Compare this classifier's confidence with that of the best possible one.

    `best`: the most that a classifier which knows the true class may be confident of the noisy one;
    `over`: share of test rows with a confidence above it by `MORE`; `confidence`: mean. And bars of
    seed 0.
    """
    tops = [probs.max(axis=1) for probs in told]
    best = 1 - facts["noise"] * (1 - 1 / of.classes)
    over = float(np.mean([top > best + MORE for top in tops]))
    more = {"best": best, "over": over, "confidence": float(np.mean(tops))}
    return more, bars_of(tops[0], method=facts["method"], noise=facts["noise"])


@of_each
def _noisy_claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield the claims of appendix B.4."""
    of = {(r["method"], r["noise"]): r for r in where(found, what="model")}
    noisy = [share for share in SHARES if share]
    most = max(noisy)
    yield (
        "with label noise the private model is surer than the best classifier may be, of more rows "
        "than the model without privacy",
        all_of(above(of[DP, s], of[NON_PRIVATE, s], "over") for s in noisy),
        "; ".join(
            f"at {share:g} (at best {of[DP, share]['best']:.2f}) "
            f"{100 * of[DP, share]['over']:.0f} %, without privacy "
            f"{100 * of[NON_PRIVATE, share]['over']:.0f} %"
            for share in noisy
        ),
    )
    yield (
        f"with {most:g} of the labels drawn anew it is so of most rows",
        of[DP, most]["over"] > 0.5,
        f"{100 * of[DP, most]['over']:.0f} %; mean confidence {of[DP, most]['confidence']:.3f}",
    )


def _noisy_sheet(found: Rows) -> Sheet:
    """Confidences by label noise, one row of panels for each of the data."""
    both = dict(zip(LOOKS, (DP, NON_PRIVATE), strict=True))
    panels = []
    for (name,), mine in grouped(found, "data").items():
        for share in SHARES:
            shown = where(mine, what="bar", noise=share)
            series = {look: where(shown, method=title) for look, title in both.items()}
            panels.append(histogram(f"{100 * share:g} % drawn anew", name, "confidence", series))
    legend = tuple(zip(LOOKS, (DP, "without privacy"), strict=True))
    return Sheet("Confidences by label noise", len(SHARES), tuple(panels), legend)


figure7 = Study(study(_noisy, 2, seen=_confident), _noisy_claims, _noisy_sheet)
