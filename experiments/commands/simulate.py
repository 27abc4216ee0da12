"""`fedcal simulate`: one method, one run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from fedcal import pages
from fedcal.errors import InputError
from fedcal.evaluation.by_group import change_table, sentences
from fedcal.experiments.commands.parameters import (
    FILES,
    ConfigFile,
    Json,
    Overwrite,
    Quiet,
    Settings,
    other,
    takes,
)
from fedcal.experiments.config import Config, load_config, merge, parse_setting
from fedcal.experiments.evaluated import about_intervals
from fedcal.experiments.files import OWN_PAGES, to_json
from fedcal.experiments.options import RUNNING
from fedcal.experiments.result import SimulationResult
from fedcal.experiments.show.tables import TextTable, of_part, print_table
from fedcal.experiments.simulation import simulate
from fedcal.experiments.terminal import SHOWN, console, progress, shown
from fedcal.strategies import participation
from fedcal.units import UNITS

_STARTING = {"ray": ": starting Flower and Ray", "grpc": ": starting Flower and the sites"}
_WAITING = ": waiting for the sites"


@takes(Config)
def simulate_command(
    *,
    resume: Annotated[
        bool, other(RUNNING, "For compare; a single run is simply run again.", "--resume")
    ] = False,
    set: Settings = None,
    config: ConfigFile = None,
    out: Annotated[Path | None, other(FILES, "Folder for result files.")] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
    **options: Any,
) -> None:
    """Run and show it."""
    if resume:
        raise InputError(
            "a single run is not resumed, it is run again: --config DIR/config.toml gives the "
            "same bits; `fedcal compare` has --resume"
        )
    given = {**options, "set": dict(map(parse_setting, set or ()))}
    asked = merge(given) if config is None else load_config(config, given)
    run_and_show(asked, out, overwrite=overwrite, quiet=quiet, json=json)


def run_and_show(
    asked: Config, out: Path | None, *, overwrite: bool, quiet: bool, json: bool
) -> None:
    """One run: its progress, then the result as text or JSON, and its files."""
    starting = _STARTING.get(asked.engine, "") if asked.control is None else _WAITING
    with progress(f"{asked.method}{starting}", quiet=quiet) as steps:

        def moved(done: int, total: int) -> None:
            steps(done, total, asked.method)

        result = simulate(asked.data, config=asked, out=out, overwrite=overwrite, progress=moved)
    if json:
        print(to_json(result.to_json()), end="")
    elif not quiet:
        show(result, out)


def show(result: SimulationResult, out: Path | None) -> None:
    """The run, its metrics and what protects whom, on the terminal."""
    to, c = console(), result.config
    rows = "" if not c.rounds else f", rounds {c.rounds}, sampling rate {c.sampling_rate:g}"
    dealt = f"on {c.data}, clients {c.clients}, {c.partition}"
    where = dealt if c.control is None else f"on {c.clients} real sites"
    if result.sites is not None:
        where = f"on {participation.in_short(result.sites)}"
    to.print(f"{c.method} {where}{rows}")
    for table in _tables(result):
        print_table(to, table, edge=True)
    if about := about_intervals(result.judged):
        to.print(about)
    for sentence in result.judged.get("sets", {}).get("guarantee", ()):
        to.print(sentence)
    for sentence in [*sentences(result.judged), *participation.sentences(result.sites)]:
        to.print(sentence)
    to.print(
        f"{_protection(result.privacy)} Who sees what, and what is not protected: "
        "privacy.statement in result.json and --json (docs/guide/privacy.md)"
    )
    sent = result.communication
    to.print(
        f"{sent['bytes_up_per_client']} bytes up and {sent['bytes_down_per_client']} down per "
        f"client{'' if result.seconds is None else f', {result.seconds:.3f} s'}"
    )
    if out is not None:
        to.print(f"written to {out}")


def _protection(privacy: Mapping[str, Any]) -> str:
    """The guarantee in a sentence; without one, that there is none."""
    if privacy["epsilon"] is None:
        return str(privacy["statement"][0])
    unit = privacy["unit"]
    neighbours = UNITS[unit].neighbours[privacy["adjacency"]]
    guarantee = f"({privacy['epsilon']:g}, {privacy['delta']:g})-DP"
    return f"{guarantee} for each {unit} (neighbouring: {neighbours})."


def _tables(result: SimulationResult) -> list[TextTable]:
    """Metrics before and after a calibrator, or what tables another artifact has."""
    if result.artifact.form not in OWN_PAGES or result.test is None:
        return [of_part(p) for p in result.page() if isinstance(p, pages.Table)]
    both = (("before", result.before), ("after", result.after))
    rows = [(name, *(shown(k, metrics[k]) for k in SHOWN)) for name, metrics in both]
    tables = [TextTable(("test rows", *SHOWN.values()), rows)]
    if (changed := result.judged.get("clients_change", {})).get("sites"):
        tables.append(of_part(change_table(changed, "client")))
    return tables
