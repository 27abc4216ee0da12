"""`fedcal reproduce`: run, show, check."""

from __future__ import annotations

from pathlib import Path

from fedcal.core.checks import FedcalError, InputError
from fedcal.experiments.report.tables import print_table
from fedcal.experiments.report.terminal import console, progress
from fedcal.experiments.research.studies.check import deviations, enough_seeds, wrong_verdicts
from fedcal.experiments.research.studies.expected import shipped
from fedcal.experiments.research.studies.registry import EXPERIMENTS, experiment
from fedcal.experiments.research.studies.result import Reproduction
from fedcal.experiments.research.studies.run import reproduce
from fedcal.experiments.runs.files import to_json


def run_reproduce(
    name: str | None,
    data: str | None,
    seeds: int | None,
    jobs: int | None,
    out: Path | None,
    *,
    resume: bool,
    overwrite: bool = False,
    ray_address: str | None = None,
    check: bool,
    listed: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """`fedcal reproduce`.

    Raises
    ------
    InputError
        An unknown name, an option that does not fit; nothing ran.
    FedcalError
        A run failed, or results are not what `check` expects.
    """
    if name is None or listed:
        given = (name, data, seeds, jobs, out, ray_address)
        if resume or check or any(option is not None for option in given):
            needed = "reproduce needs a NAME; fedcal reproduce --list shows them"
            raise InputError(needed if name is None else "--list takes no NAME and no other option")
        _list(quiet=quiet, as_json=as_json)
        return
    files = [] if data is None else [text.strip() for text in data.split(",")]
    if not all(files):
        raise InputError(f"--data: an entry of the list {data!r} is empty")
    experiment(name)
    expected = shipped(name) if check else None
    with progress(name, quiet=quiet) as steps:
        result = reproduce(
            name,
            data=files,
            seeds=seeds,
            jobs=jobs,
            out=out,
            resume=resume,
            overwrite=overwrite,
            ray_address=ray_address,
            progress=steps,
        )
    if as_json:
        print(to_json(result.to_json()), end="")
    elif not quiet:
        _show(result, out)
    if failures := result.failures:
        raise FedcalError(f"{len(failures)} runs failed, the first with: {failures[0]}")
    if expected is not None:
        found = deviations(result, expected)
        if told := enough_seeds(result):
            found += wrong_verdicts(result)
        _check(result, found, told=told, quiet=quiet or as_json)


def _list(*, quiet: bool, as_json: bool) -> None:
    found = [experiment(name) for name in EXPERIMENTS]
    if as_json:
        print(
            to_json([{"name": e.name, "title": e.title, "about": e.about} for e in found]), end=""
        )
    elif not quiet:
        to, wide = console(), max(map(len, EXPERIMENTS))
        for e in found:
            to.print(f"{e.name:{wide}}  {e.about}")


def _show(result: Reproduction, out: Path | None) -> None:
    to = console()
    for block in result.blocks:
        print_table(to, block)
    if result.legend:
        to.print(result.legend.replace("Bold", "*"))
    for v in result.verdicts:
        own = f"; in the paper's own numbers {v.printed}" if v.printed else ""
        to.print(f"- {v.word}: {v.text} ({v.said}{own})")
    for line in result.experiment.notes:
        to.print(f"- {line}")
    if out is not None:
        to.print(f"written to {out}; the page is {out / result.experiment.name}.html")


def _check(result: Reproduction, found: list[str], *, told: bool, quiet: bool) -> None:
    errors = console(stderr=True)
    for line in found:
        errors.print(f"fedcal: deviation: {line}")
    if found:
        raise FedcalError(
            f"{result.experiment.name}: {len(found)} deviations from what is expected"
        )
    if not quiet:
        verdicts = "" if told else "; verdicts are of more seeds and are not checked"
        print(f"all results are as expected{verdicts}")
