"""`fedcal plan --method conformal`: options, table, files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedcal.core.checks import unused
from fedcal.experiments.planner.saving import save
from fedcal.experiments.planner.sets import sentences
from fedcal.experiments.planner.sets.advice import SetAdvice
from fedcal.experiments.planner.sets.plan import plan_sets
from fedcal.experiments.report.tables import TextTable, print_table
from fedcal.experiments.report.terminal import console, progress
from fedcal.experiments.runs.config import parse_setting
from fedcal.experiments.runs.files import to_json


def run_set_plan(
    options: Mapping[str, Any],
    data: str | None,
    settings: Sequence[str],
    out: Path | None,
    *,
    quiet: bool,
    as_json: bool,
) -> None:
    """Plan and show it."""
    given = {k: v for k, v in options.items() if v is not None}
    for name in ("partition", "rounds", "engine"):
        unused("a plan of prediction sets does not depend on it", **{name: given.pop(name, None)})
    with progress("planning", quiet=quiet) as steps:

        def moved(done: int, total: int) -> None:
            what = "planning" if done < total else "looking for what would be enough"
            steps(done, total, what)

        advice = plan_sets(
            **given, data=data, settings=dict(map(parse_setting, settings)), progress=moved
        )
    if out is not None:
        save(sentences.to_json(advice), advice.options, out)
    if as_json:
        print(to_json(sentences.to_json(advice)), end="")
    elif not quiet:
        show(advice, out)


def show(advice: SetAdvice, out: Path | None) -> None:
    """The table, the recommendation, and what stands behind them."""
    to = console()
    to.print(f"plan for prediction sets, alpha {advice.goal.alpha:g}: {advice.facts}")
    sizes = advice.exact[1] is not None
    headings = (*_HEADINGS, *(_SIZES if sizes else ()), "of use")
    rows = [_cells(sentences.line_of(e, advice), sizes) for e in advice.estimates]
    coverage, size = advice.exact
    exact = ["without privacy", f"{coverage:.4f}", "", "", ""]
    exact += ["" if size is None else f"{size:.3f}", "100 %"] if sizes else []
    print_table(to, TextTable(headings, [*rows, [*exact, ""]], left=(0, len(exact))), edge=True)
    reasons: dict[str, list[str]] = {}
    for name, why in advice.refused:
        reasons.setdefault(why, []).append(name)
    for why, names in reasons.items():
        to.print(f"not tried: {', '.join(names)}: {why}")
    to.print(sentences.recommended(advice))
    if (run := sentences.command(advice)) is not None:
        to.print(f"  {run}")
    for line in sentences.explanation(advice):
        to.print(f"- {line}")
    if out is not None:
        to.print(f"written to {out}")


_HEADINGS = (*("quantile", "coverage", "slack, rows", "sets of all labels", "fewest clients"),)
_SIZES = ("labels in a set", "of those without privacy")


def _cells(line: dict[str, Any], sizes: bool) -> list[str]:
    expected = line["expected"]
    cells = [
        line["quantile"],
        f"{expected['coverage']:.4f}",
        f"{expected['slack_rows']:,.1f}",
        f"{100 * expected['all_labels']:.1f} %",
        "none" if line["fewest_clients"] is None else f"{line['fewest_clients']:,}",
    ]
    if sizes:
        cells += [f"{expected['set_size']:.3f}", f"{100 * expected['set_size_ratio']:.0f} %"]
    return [*cells, "yes" if line["useful"] else "no"]
