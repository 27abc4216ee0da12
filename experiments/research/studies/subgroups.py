"""The worked examples of `docs/guide/subgroups.md`: a release by group beside the exact rows.

`python -m fedcal.experiments.research.studies.subgroups docs/img` draws the page's figures; its
tables and sentences are blocks of `documents`. All is computed from shipped data in seconds.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any, cast

from fedcal.core.pages import Intervals, Table
from fedcal.evaluation import cox, groups_test
from fedcal.evaluation import evaluate as read
from fedcal.evaluation.findings import Findings
from fedcal.evaluation.histogram import Histogram
from fedcal.evaluation.intervals import Estimate
from fedcal.evaluation.page import p_shown
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.experiments.report.figures.drawing import draw, save_figure
from fedcal.experiments.report.figures.parts import drawn
from fedcal.experiments.report.tables import markdown
from fedcal.experiments.runs.simulation import evaluate
from fedcal.strategies.methods.evaluate import BUCKETS
from fedcal.units import Example

SEEDS = 20
"""Of the noise, where a sentence says how often something is found."""

ASKED: Mapping[str, dict[str, Any]] = {
    "mmlu-llama": {
        **{"partition": "natural", "by": "site", "bins": 30},
        "set": {"edges": "equal-width"},
    },
    "game-forecasts": {"partition": "natural", "by": "group"},
    "adult-income": {"partition": "iid", "by": "group"},
}
"""Data -> the options of the page's command."""


@cache
def release(
    data: str, epsilon: float = 1.0, seed: int = 0, bins: int | None = None
) -> ScoreRelease:
    """Return the release of the page's command, or one with another number of buckets."""
    options = ASKED[data] if bins is None else ASKED[data] | {"bins": bins}
    run = evaluate(data, epsilon=epsilon, unit=Example.name, seed=seed, **options)
    return cast("ScoreRelease", run.artifact)


def exact(data: str) -> Findings:
    """Without noise, in fine buckets: what a simulation knows, and a federation does not."""
    return release(data, math.inf, bins=BUCKETS).found


def counted(data: str, group: str, epsilon: float = math.inf) -> float:
    """Rows of a group; with noise where there is any."""
    return float(release(data, epsilon).histograms["model", group, ""].counts.sum())


def of(found: Findings, group: str, metric: str) -> Estimate | None:
    """Return the estimate for a group, or for all rows (""); None if the group is suppressed."""
    if not group:
        return found.metrics["model"][metric]
    told = found.groups[group]
    return told["model"][metric] if told else None


def apart(e: Estimate | None) -> bool:
    """Return True if the interval excludes 0, even if noise drowns the value itself."""
    return e is not None and (e.low > 0 or e.high < 0)


# -- tables and sentences ------------------------------------------------------------------------


def name(group: str) -> str:
    """Return the group's name as the page shows it."""
    return group.replace("_", " ")


def cell(e: Estimate | None, sign: str = "") -> str:
    """Format a share in %, with its interval."""
    if e is None:
        return "too few rows"
    low, high = (f"{100 * end:{sign}.1f}" for end in (e.low, e.high))
    value = "drowned" if e.drowned else f"{100 * e.value:{sign}.1f}"
    if sign and apart(e) and not e.drowned:
        value = f"**{value}**"
    return f"{value} ({low} to {high})"


def listed(groups: Iterable[str]) -> str:
    """Join names as "A, b and c"."""
    *most, last = map(name, groups)
    return f"{', '.join(most)} and {last}" if most else last


def by_subject() -> str:
    """Accuracy and gap of each subject, exact and at epsilon = 1."""
    truth, told = exact("mmlu-llama"), release("mmlu-llama").found
    lines = [
        (
            name(group),
            f"{counted('mmlu-llama', group):.0f}",
            *(cell(of(found, group, "accuracy")) for found in (truth, told)),
            *(cell(of(found, group, "gap"), "+") for found in (truth, told)),
        )
        for group in told.groups
    ]
    what = ("accuracy", "confidence less accuracy")
    head = [f"{of_it}, %, {how}" for of_it in what for how in ("exact", "epsilon = 1")]
    return markdown(Table("", ("subject", "questions", *head), lines, left=(0,)))


def gap_of(h: Histogram) -> Estimate:
    """Mean confidence less accuracy, and nothing else of what could be read."""
    return read(h, "confidence", only=("gap",))["gap"]


def half_width(bins: int) -> float:
    """Return the mean half width of a subject's gap interval at epsilon = 1, in points."""
    told = release("mmlu-llama", bins=bins).histograms
    each = [gap_of(h) for (_, group, _), h in told.items() if group]
    return 100 * fmean((e.high - e.low) / 2 for e in each)


def subjects_read() -> str:
    """Describe what the table shows about subjects."""
    data = "mmlu-llama"
    truth, told = exact(data), release(data).found
    seeds = [release(data, seed=seed).histograms for seed in range(SEEDS)]
    each = [{g: gap_of(h["model", g, ""]) for g in truth.groups} for h in seeds]
    known = [g for g in truth.groups if apart(of(truth, g, "gap"))]
    often = {g: sum(apart(gaps[g]) for gaps in each) for g in truth.groups}
    others = sum(often[g] for g in truth.groups if g not in known)
    here = [g for g in told.groups if apart(of(told, g, "gap"))]
    p_values = [groups_test(gaps.values()).p_value for gaps in each]
    overall = [cox(h["model", "", ""]).p_value for h in seeds]
    together = truth.tests["model"]["groups"]
    exact_p = p_shown(together.p_value, together.floor)
    here_all = each[0].values()
    noise, sampling = (100 * fmean(getattr(e, p) for e in here_all) for p in ("noise", "sampling"))
    widths = ", ".join(f"{half_width(bins):.1f} with {bins}" for bins in (15, 30, 60, BUCKETS))
    return "\n".join(
        (
            f"* **All questions together**: {cell(of(told, '', 'gap'), '+')} points. In the mean "
            "the model is as sure as it is right. That is not so at every confidence: without "
            f"noise its ECE is {cell(of(truth, '', 'ece'))} %, and Cox's test finds "
            f"it in {sum(p < 0.05 for p in overall)} of {SEEDS} seeds of the noise.",
            "* **All subjects at once** (the last of the tests above): "
            f"p = {p_values[0]:.2g}. It is below 0.05 in {sum(p < 0.05 for p in p_values)} of the "
            f"{SEEDS} seeds; without noise p {exact_p}.",
            f"* **Which subjects.** This release says: {listed(here)}. The exact rows say: "
            f"{listed(known)}. Of {SEEDS} seeds so many find each of these: "
            f"{', '.join(f'{name(g)} {often[g]}' for g in known)}; another subject is named in "
            f"{others} of {SEEDS * (len(often) - len(known))} cases. Among 16 intervals of 95 % "
            "about one misses, with and without privacy: look closer at a subject before it is "
            "blamed.",
            "* **What cannot be told.** Noise gives a subject's gap a standard deviation of "
            f"{noise:.1f} points, which questions were asked one of {sampling:.1f}. So an interval "
            "that holds 0 does not say that a subject is calibrated: even without noise, 100 "
            "questions cannot tell a gap of 8 points from none.",
            "* **Buckets.** Half the width of such an interval is, on average in points, "
            f"{widths} buckets: few hide more of the score, many add more noise.",
        )
    )


def by_league() -> str:
    """Gap of each league at three budgets."""
    budgets = {"exact": math.inf, "epsilon = 1": 1.0, "epsilon = 0.1": 0.1}
    lines = [
        (
            name(group),
            f"{counted('game-forecasts', group):,.0f}",
            *(
                cell(of(release("game-forecasts", e).found, group, "gap"), "+")
                for e in budgets.values()
            ),
        )
        for group in exact("game-forecasts").groups
    ]
    rates = (f"predicted minus observed rate, %, {b}" for b in budgets)
    return markdown(Table("", ("league", "games", *rates), lines, left=(0,)))


def leagues_read() -> str:
    """Describe which leagues are found, and what a smaller budget hides."""
    data = "game-forecasts"

    def silent(told: Findings) -> list[str]:
        return [g for g in told.groups if (e := of(told, g, "gap")) is None or e.drowned]

    def found(told: Findings) -> str:
        hidden = silent(told)
        return listed(g for g in told.groups if g not in hidden and apart(of(told, g, "gap")))

    small = release(data, 0.1).found
    return (
        f"The exact rows find the forecasts too high in {found(exact(data))}. This release at "
        f"epsilon = 1 finds {found(release(data).found)}. At epsilon = 0.1 it is {found(small)}; "
        f"{listed(silent(small))} are drowned or left out."
    )


def by_sex_and_race() -> str:
    """Calibration and error rates of each group, at epsilon = 1."""
    told = release("adult-income").found
    lines = [
        (
            group,
            f"{counted('adult-income', group, 1.0):,.0f}",
            cell(of(told, group, "prevalence")),
            cell(of(told, group, "gap"), "+"),
            cell(turned(of(told, group, "specificity"))),
            cell(of(told, group, "recall")),
        )
        for group in told.groups
    ]
    head = (
        *("group", "rows (noisy)", "earn above 50,000, %", "predicted minus observed rate, %"),
        *("false positive rate, %", "recall, %"),
    )
    return markdown(Table("", head, lines, left=(0,)))


def turned(e: Estimate | None) -> Estimate | None:
    """Return one minus a rate."""
    return e and replace(e, value=1 - e.value, low=1 - e.high, high=1 - e.low)


def groups_read() -> str:
    """Describe what two large groups show, and what noise hides of small ones."""
    data, women, men = "adult-income", "Female, White", "Male, White"
    truth, told, less = exact(data), release(data).found, release(data, 0.25).found

    def rate(found: Findings, group: str) -> str:
        return cell(turned(of(found, group, "specificity")))

    drowned = [g for g in told.groups if (e := of(told, g, "gap")) is None or e.drowned]
    gone = [g for g, metrics in less.groups.items() if not metrics]
    return "\n".join(
        (
            "* **Calibrated, or nearly so.** Scores are off by "
            f"{cell(of(told, women, 'gap'), '+')} points for white women and by "
            f"{cell(of(told, men, 'gap'), '+')} for white men.",
            "* **Unequal errors.** At one threshold for all, of white men who earn less "
            f"{rate(told, men)} % are taken for those who earn more, of white women "
            f"{rate(told, women)} %. The exact rates are {rate(truth, men)} and "
            f"{rate(truth, women)}: of groups as large as these epsilon = 1 hides nothing.",
            f"* **Small groups.** Of {len(drowned)} groups the gap is drowned; the largest has "
            f"{max(counted(data, g) for g in drowned):.0f} rows. At epsilon = 0.25 they would "
            f"be left out altogether, by their noisy count: {'; '.join(gone)}.",
        )
    )


BLOCKS: Mapping[str, Callable[[], str]] = {
    "subgroups-subjects": by_subject,
    "subgroups-subjects-read": subjects_read,
    "subgroups-leagues": by_league,
    "subgroups-leagues-read": leagues_read,
    "subgroups-adult": by_sex_and_race,
    "subgroups-adult-read": groups_read,
}

# -- figures -------------------------------------------------------------------------------------


def forest(
    data: str,
    metric: str,
    label: str,
    change: Callable[[Estimate | None], Estimate | None] = lambda e: e,
) -> Intervals:
    """Plot a metric of each group, changed or not, exact and at epsilon = 1."""
    series = {}
    for how, found in {"exact": exact(data), "epsilon = 1": release(data).found}.items():
        told = {group: change(of(found, group, metric)) for group in found.groups}
        series[how] = tuple(
            (
                name(g),
                100 * (e.low + e.high) / 2 if e.drowned else 100 * e.value,
                *(100 * e.low, 100 * e.high),
            )
            for g, e in told.items()
            if e is not None
        )
    overall = change(of(exact(data), "", metric))
    references = {"all rows": 100 * overall.value} if overall and metric != "gap" else {}
    references |= {"calibrated": 0.0} if metric == "gap" else {}
    return Intervals(label, label, series, references)


FIGURES: Mapping[str, Callable[[], Intervals]] = {
    "subgroups-subjects": partial(forest, "mmlu-llama", "gap", "confidence less accuracy, points"),
    "subgroups-adult": partial(
        forest, "adult-income", "specificity", "false positive rate, %", turned
    ),
}
"""Name of a file -> what it shows."""

TITLES = {
    "subgroups-subjects": "mmlu-llama: 16 subjects, with 95 % intervals",
    "subgroups-adult": "adult-income at threshold 0.5, with 95 % intervals",
}


def main(arguments: list[str] | None = None) -> None:
    """Draw the figures into a folder, for light and dark pages."""
    from PIL import Image

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args(arguments).folder
    for stem, shown in FIGURES.items():
        sheet = replace(drawn(shown()), title=TITLES[stem])
        for suffix, dark in (("", False), ("-dark", True)):
            path = folder / f"{stem}{suffix}.png"
            save_figure(draw(sheet, dark), path, dark=dark)
            Image.open(path).convert("RGB").quantize(64).save(path, optimize=True)


if __name__ == "__main__":
    main()
