"""Say from public facts what budget, rounds and clients buy, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from fedcal.core.errors import InputError
from fedcal.experiments.cli.parameters import (
    FILES,
    FIRST,
    Json,
    Overwrite,
    Quiet,
    Settings,
    other,
    takes,
)
from fedcal.experiments.cli.plan_sets import run_set_plan
from fedcal.experiments.planner import plan as planning
from fedcal.experiments.planner.advice import Advice
from fedcal.experiments.planner.choice import CandidateEstimate
from fedcal.experiments.planner.duration import grpc_seconds, in_words
from fedcal.experiments.planner.saving import save
from fedcal.experiments.planner.sentences import MORE, at_home, explanation, recommended
from fedcal.experiments.planner.sentences import command as command_line
from fedcal.experiments.planner.sets.sums import METHOD as SETS
from fedcal.experiments.report.tables import TextTable, print_table
from fedcal.experiments.report.terminal import console, progress
from fedcal.experiments.runs.config import Config
from fedcal.experiments.runs.files import to_json
from fedcal.experiments.runs.folders import PLAN, claim


def run_plan(
    options: Mapping[str, Any],
    data: str | None,
    method: str | None,
    settings: Sequence[str],
    out: Path | None,
    *,
    quiet: bool,
    as_json: bool,
) -> None:
    """`fedcal plan`."""
    if method == SETS:
        run_set_plan(options, data, settings, out, quiet=quiet, as_json=as_json)
        return
    if settings:
        raise InputError(f"--set is of --method {SETS}: of other methods a plan tries settings")
    with progress("planning", quiet=quiet) as steps:

        def moved(done: int, total: int) -> None:
            what = "planning" if done < total else "looking for what would be enough"
            steps(done, total, what)

        advice = planning.plan(
            **{k: v for k, v in options.items() if v is not None},
            data=_listed(data) or (),
            methods=_listed(method),
            progress=moved,
        )
    if out is not None:
        save(planning.to_json(advice), advice.options, out)
    if as_json:
        print(to_json(planning.to_json(advice)), end="")
    elif not quiet:
        show(advice, out)


def show(advice: Advice, out: Path | None) -> None:
    """The table, the recommendation, and what stands behind them."""
    to = console()
    to.print(f"plan for {advice.facts}, {advice.facts.partition}")
    for line in at_home(advice):
        to.print(line)
    headings: tuple[str, ...] = _HEADINGS
    rows = [_cells(estimate) for estimate in advice.estimates]
    if advice.engine == "grpc":
        headings = (*headings, "wall time")
        times = [in_words(grpc_seconds(estimate.plan)) for estimate in advice.estimates]
        rows = [[*row, time] for row, time in zip(rows, times, strict=True)]
    print_table(to, TextTable(headings, rows, left=(0, 6)), edge=True)
    to.print(MORE)
    reasons: dict[str, list[str]] = {}
    for name, why in advice.refused:
        reasons.setdefault(why, []).append(name)
    for why, names in reasons.items():
        to.print(f"not tried: {', '.join(names)}: {why}")
    to.print(recommended(advice))
    if (run := command_line(advice)) is not None:
        to.print(f"  {run}")
    for line in explanation(advice):
        to.print(f"- {line}")
    if out is not None:
        to.print(f"written to {out}")


_HEADINGS = (
    *("method", "rounds", "ECE after, %", "error left", "runs made worse"),
    *("bytes a client sends", "pays"),
)


def _cells(estimate: CandidateEstimate) -> list[str]:
    line = estimate.to_json()
    expected = line["expected"]
    return [
        estimate.candidate.text,
        str(line["rounds"]),
        f"{100 * expected['ece']:.2f}",
        f"{100 * expected['error_left']:.0f} %",
        f"{100 * expected['worse_than_none']:.0f} %",
        f"{line['bytes_up_per_client']:,}",
        "yes" if line["pays"] else "no",
    ]


def _listed(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",")]


EXAMPLES = (
    "fedcal plan --clients 100 --rows-per-client 50 --classes 10 --epsilon 1",
    "fedcal plan --clients 20 --rows-per-client 500 --data imdb-binary --epsilon 4 --out plan",
    "fedcal plan --method conformal --set alpha=0.1 --clients 100 --rows-per-client 50 "
    "--classes 10 --epsilon 1",
)


@takes(
    Config,
    *("clients", "partition", "rounds", "sampling_rate"),
    *("epsilon", "delta", "unit", "trust", "mechanism", "quorum", "engine", "seed"),
    unset={"clients": "needed", "rounds": "the planner's"},
)
def command(
    *,
    rows_per_client: Annotated[
        float | None, other(FIRST, "A public nominal number of rows, not a count (needed).")
    ] = None,
    classes: Annotated[
        int | None, other(FIRST, "Of the model (needed, unless --data is given).")
    ] = None,
    data: Annotated[
        str | None,
        other(FIRST, "Shipped names to plan on (made-up rows); for conformal rows of any kind."),
    ] = None,
    method: Annotated[
        str | None,
        other(FIRST, "Methods to try, with commas (all but the slowest); or conformal."),
    ] = None,
    set: Settings = None,
    out: Annotated[Path | None, other(FILES, "Folder for plan.json and config.toml.")] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
    **options: Any,
) -> None:
    """Plan and show it."""
    facts = {**options, "rows_per_client": rows_per_client, "classes": classes}
    if out is not None:
        claim(out, PLAN, overwrite=overwrite)
    run_plan(facts, data, method, set or (), out, quiet=quiet, as_json=json)
