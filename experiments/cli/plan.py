"""Plan a run from public facts: what budget, rounds and clients will buy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from fedcal.core.checks import unused
from fedcal.core.errors import InputError
from fedcal.experiments.cli.parameters import (
    FILES,
    FIRST,
    Json,
    Overwrite,
    Quiet,
    Settings,
    other,
    with_options,
)
from fedcal.experiments.planner.advice import Advice
from fedcal.experiments.planner.candidates import SETS
from fedcal.experiments.planner.method_advice import MethodAdvice, grpc_seconds, in_words
from fedcal.experiments.planner.plan import NEEDED, facts_of, plan, plan_sets, save
from fedcal.experiments.planner.prior_advice import METHOD, PriorAdvice, advise_prior
from fedcal.experiments.planner.set_advice import SetAdvice
from fedcal.experiments.report.tables import TextTable, print_table
from fedcal.experiments.report.terminal import console, progress
from fedcal.experiments.runs.config import Config, parse_setting
from fedcal.experiments.runs.files import to_json
from fedcal.experiments.runs.folders import PLAN, claim

_RUN = ("partition", "rounds", "engine")
MORE = "Mechanism, clip bound, noise, classwise ECE of each line: --json, and plan.json of --out."


EXAMPLES = (
    "fedcal plan --clients 100 --rows-per-client 50 --classes 10 --epsilon 1",
    "fedcal plan --clients 20 --rows-per-client 500 --data imdb-binary --epsilon 4 --out plan",
    "fedcal plan --method conformal --set alpha=0.1 --clients 100 --rows-per-client 50 "
    "--classes 10 --epsilon 1",
    "fedcal plan --method fedprior --clients 30 --rows-per-client 100 --classes 2 --epsilon 1 "
    "--unit subject",
)


@with_options(
    Config,
    *("clients", "partition", "rounds", "sampling_rate"),
    *("epsilon", "delta", "unit", "trust", "mechanism", "quorum", "engine", "seed"),
    unset={"clients": "required", "rounds": "the planner's"},
)
def command(
    *,
    rows_per_client: Annotated[
        float | None,
        other(FIRST, "Public nominal number of rows of a client, not a count (required)."),
    ] = None,
    classes: Annotated[
        int | None, other(FIRST, "Number of classes (required without --data).")
    ] = None,
    data: Annotated[
        str | None,
        other(
            FIRST,
            "Shipped data sets to plan on (default: made-up rows); for conformal also a file.",
        ),
    ] = None,
    method: Annotated[
        str | None,
        other(
            FIRST,
            "Comma-separated methods (default: all but the slowest), or conformal, or fedprior.",
        ),
    ] = None,
    set: Settings = None,
    out: Annotated[Path | None, other(FILES, "Folder for plan.json and config.toml.")] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
    **options: Any,
) -> None:
    """Plan and show the advice."""
    if out is not None:
        claim(out, PLAN, overwrite=overwrite)
    facts = {**options, "rows_per_client": rows_per_client, "classes": classes}
    options_given = {k: v for k, v in facts.items() if v is not None}
    if set and method != SETS:
        raise InputError(
            f"--set is for --method {SETS}: for other methods a plan tries settings itself"
        )
    if method == SETS:
        for name in _RUN:
            why = "a plan of prediction sets does not depend on it"
            unused(why, **{name: options_given.pop(name, None)})
    advice: Advice
    with progress("planning", quiet=quiet) as steps:

        def moved(done: int, total: int) -> None:
            what = "planning" if done < total else "looking for what would be enough"
            steps(done, total, what)

        if method == SETS:
            advice = plan_sets(
                **options_given,
                data=data,
                settings=dict(map(parse_setting, set or ())),
                progress=moved,
            )
            table = _table_of_sets(advice)
        elif method == METHOD:
            unused(
                "this plan reads no rows",
                data=data,
                **{k: options_given.pop(k, None) for k in _RUN},
            )
            seed = options_given.pop("seed", 0)
            public: dict[str, Any] = dict.fromkeys(("of_data", *NEEDED)) | options_given
            advice = advise_prior(facts_of(**public), seed)
            table = _table_of_prior(advice)
        else:
            advice = plan(
                **options_given, data=_listed(data) or (), methods=_listed(method), progress=moved
            )
            table = _table_of_methods(advice)
    if out is not None:
        save(advice, out)
    if json:
        print(to_json(advice.to_json()), end="")
    elif not quiet:
        _show(advice, table, out)


def _show(advice: Advice, table: TextTable, out: Path | None) -> None:
    """Print the table, the recommendation and the reasons."""
    to = console()
    for line in (advice.heading, *advice.first):
        to.print(line)
    print_table(to, table, edge=True)
    if isinstance(advice, MethodAdvice):
        to.print(MORE)
    reasons: dict[str, list[str]] = {}
    for name, why in advice.refused:
        reasons.setdefault(why, []).append(name)
    for why, names in reasons.items():
        to.print(f"not tried: {', '.join(names)}: {why}")
    to.print(advice.recommended())
    if advice.command is not None:
        to.print(f"  {advice.command}")
    for line in advice.explanation():
        to.print(f"- {line}")
    if out is not None:
        to.print(f"written to {out}")


def _table_of_methods(advice: MethodAdvice) -> TextTable:
    columns = [
        *("method", "rounds", "ECE after, %", "error left", "runs made worse"),
        *("bytes a client sends", "pays"),
    ]
    rows = []
    for estimate in advice.estimates:
        line = estimate.to_json()
        expected = line["expected"]
        rows.append(
            [
                estimate.candidate.text,
                str(line["rounds"]),
                f"{100 * expected['ece']:.2f}",
                f"{100 * expected['error_left']:.0f} %",
                f"{100 * expected['worse_than_none']:.0f} %",
                f"{line['bytes_up_per_client']:,}",
                "yes" if line["pays"] else "no",
            ]
        )
    if advice.engine == "grpc":
        columns.append("wall time")
        for row, estimate in zip(rows, advice.estimates, strict=True):
            row.append(in_words(grpc_seconds(estimate.plan)))
    return TextTable(tuple(columns), rows, left=(0, 6))


def _table_of_prior(advice: PriorAdvice) -> TextTable:
    """Tabulate expected log loss above the best, by the site's own rows."""
    lines = [[f"{value:.4g}" for value in line.values()] for line in advice.tried()["rows"]]
    columns = ("own rows", "log loss above the best, alone", "with the release", "it adds")
    return TextTable(columns, lines, left=())


def _table_of_sets(advice: SetAdvice) -> TextTable:
    """Tabulate each rule, and one without privacy; sizes if they are known."""
    columns = ["quantile", "coverage", "slack, rows", "sets of all labels", "fewest clients"]
    coverage, size = advice.exact
    last = ["without privacy", f"{coverage:.4f}", "", "", ""]
    if size is not None:
        columns += ["labels in a set", "of those without privacy"]
        last += [f"{size:.3f}", "100 %"]
    rows = []
    for estimate in advice.estimates:
        line = advice.line(estimate)
        expected, fewest = line["expected"], line["fewest_clients"]
        row = [
            line["quantile"],
            f"{expected['coverage']:.4f}",
            f"{expected['slack_rows']:,.1f}",
            f"{100 * expected['all_labels']:.1f} %",
            "none" if fewest is None else f"{fewest:,}",
        ]
        if size is not None:
            row += [f"{expected['set_size']:.3f}", f"{100 * expected['set_size_ratio']:.0f} %"]
        rows.append([*row, "yes" if line["useful"] else "no"])
    columns.append("of use")
    return TextTable(tuple(columns), [*rows, [*last, ""]], left=(0, len(last)))


def _listed(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",")]
