"""The command `fedcal`. One clear line on stderr and exit code 2 for anything not allowed."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import click
import typer
from rich.console import Console
from typer.core import TyperCommand

from fedcal import __version__
from fedcal.errors import FedcalError, InputError, NotBuiltYet

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Private, federated calibration of classifiers.",
)

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

LATER = {
    "evaluate": "Federated metrics of a model.",
    "site": "One site of a deployment.",
}


def filled(text: str) -> str:
    """A help text with the names that stand in registries; read only when somebody asks."""
    if "<" not in text:
        return text
    from fedcal.experiments.config import METHODS
    from fedcal.mechanisms import PRIVATE
    from fedcal.units import UNITS

    meanings = [unit.meaning.partition(";")[0] for unit in UNITS.values()]
    for word, names in (
        *(("methods", list(METHODS)), ("mechanisms", list(PRIVATE))),
        *(("units", list(UNITS)), ("meanings", meanings)),
    ):
        text = text.replace(f"<{word}>", " | ".join(names))
    return text


class Listing(TyperCommand):
    """A command whose options name what stands in registries."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Fill the names in, then as always."""
        for option in self.params:
            if isinstance(option, click.Option) and option.help:
                option.help = filled(option.help)
        super().format_help(ctx, formatter)


Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but warnings and errors.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"fedcal {__version__}")
        raise typer.Exit


@app.callback()
def root(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Private, federated calibration of classifiers."""


@app.command(cls=Listing)
def simulate(
    data: Annotated[
        str | None, typer.Option(help="A shipped name or a file (resnet110-cifar10).")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help="<methods> | auto: what the planner recommends (fednewton)."),
    ] = None,
    clients: Annotated[int | None, typer.Option(help="Enrolled clients (100).")] = None,
    partition: Annotated[
        str | None,
        typer.Option(
            help="iid | dirichlet:BETA | quantity:BETA | shards:N | natural | flwr:NAME "
            "(dirichlet:0.1)."
        ),
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of queries (the method's).")] = None,
    sampling_rate: Annotated[
        float | None, typer.Option(help="A client takes part with this probability (1).")
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Budget of the whole run for each unit (inf).")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="Failure probability (1e-5).")] = None,
    unit: Annotated[
        str | None,
        typer.Option(help="<meanings> (user)."),
    ] = None,
    trust: Annotated[
        str | None,
        typer.Option(
            help="Who adds noise: secagg, nobody | central, the server | distributed, each client "
            "a share | local, each client all of it (secagg at epsilon inf, else central)."
        ),
    ] = None,
    mechanism: Annotated[
        str | None,
        typer.Option(help="auto | <mechanisms> (auto: what suits method and trust)."),
    ] = None,
    quorum: Annotated[
        float | None,
        typer.Option(
            help="Trust distributed: share of the clients that must answer a round (0.9)."
        ),
    ] = None,
    noise_source: Annotated[
        str | None,
        typer.Option(help="seeded: repeatable | system: the operating system's (seeded)."),
    ] = None,
    engine: Annotated[str | None, typer.Option(help="inline | ray (inline).")] = None,
    secure_aggregation: Annotated[
        str | None, typer.Option(help="none | masks (masks for trust distributed, else none).")
    ] = None,
    dropout: Annotated[
        float | None, typer.Option(help="A sampled client fails with this probability (0).")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of partition, sampling, noise (0).")] = None,
    ledger: Annotated[str | None, typer.Option(help="SQLite file that is charged.")] = None,
    cap: Annotated[float | None, typer.Option(help="The ledger's total epsilon.")] = None,
    cap_delta: Annotated[
        float | None, typer.Option(help="The ledger's total delta (1e-3 in a new file).")
    ] = None,
    ray_address: Annotated[
        str | None, typer.Option(help="A Ray cluster for the engine ray (one of its own).")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="For compare; a single run is simply run again.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for result files; an earlier run's are replaced.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="KEY=VALUE, a method's own parameter.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file with these options.")] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Calibrate a model over simulated clients: one method, one run."""
    if resume:
        raise InputError(
            "a single run is not resumed, it is run again: --config DIR/config.toml gives the "
            "same bits; `fedcal compare` has --resume"
        )
    options: dict[str, Any] = {
        "data": data,
        "method": method,
        "clients": clients,
        "partition": partition,
        "rounds": rounds,
        "sampling_rate": sampling_rate,
        "epsilon": epsilon,
        "delta": delta,
        "unit": unit,
        "trust": trust,
        "mechanism": mechanism,
        "quorum": quorum,
        "noise_source": noise_source,
        "engine": engine,
        "secure_aggregation": secure_aggregation,
        "dropout": dropout,
        "seed": seed,
        "ray_address": ray_address,
        "ledger": ledger,
        "cap": cap,
        "cap_delta": cap_delta,
    }
    from fedcal.experiments.commands import run_simulate

    run_simulate(options, settings or [], config, out, quiet=quiet, as_json=json)


@app.command(cls=Listing)
def compare(
    data: Annotated[
        str | None, typer.Option(help="Shipped names or files (resnet110-cifar10).")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help="Methods (all); fedbbq\\[weighting=none] is one with a parameter."),
    ] = None,
    epsilon: Annotated[str | None, typer.Option(help="Budgets (inf,1).")] = None,
    partition: Annotated[str | None, typer.Option(help="Partitions (dirichlet:0.1).")] = None,
    clients: Annotated[str | None, typer.Option(help="Numbers of clients (100).")] = None,
    sampling_rate: Annotated[str | None, typer.Option(help="Sampling rates (1).")] = None,
    trust: Annotated[
        str | None, typer.Option(help="Who adds noise, as simulate's (what fits epsilon).")
    ] = None,
    rounds: Annotated[str | None, typer.Option(help="Rounds of queries (the method's).")] = None,
    delta: Annotated[str | None, typer.Option(help="Failure probabilities (1e-5).")] = None,
    unit: Annotated[str | None, typer.Option(help="<units>; as simulate's (user).")] = None,
    mechanism: Annotated[
        str | None, typer.Option(help="Kinds of noise, as simulate's (auto).")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="How many, from --seed on (5).")] = None,
    seed: Annotated[int | None, typer.Option(help="The first of them (0).")] = None,
    quorum: Annotated[
        float | None,
        typer.Option(help="Trust distributed: share of clients that must answer (0.9)."),
    ] = None,
    noise_source: Annotated[
        str | None, typer.Option(help="seeded | system, for all runs (seeded).")
    ] = None,
    secure_aggregation: Annotated[
        str | None,
        typer.Option(help="none | masks, for all runs (masks for trust distributed, else none)."),
    ] = None,
    dropout: Annotated[
        float | None, typer.Option(help="A sampled client fails with this probability (0).")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="KEY=VALUE, for methods that have it.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes (the usable cores).")] = None,
    engine: Annotated[
        str | None, typer.Option(help="inline: processes here | ray: tasks on Ray (inline).")
    ] = None,
    ray_address: Annotated[
        str | None, typer.Option(help="HOST:PORT of a Ray cluster, or local: implies ray.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on with what --out holds, and run again what failed; the grid may grow.",
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for rows, tables, report; a finished one's stay until then."),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file with these options.")] = None,
    ledger: Annotated[str | None, typer.Option(hidden=True)] = None,
    cap: Annotated[float | None, typer.Option(hidden=True)] = None,
    cap_delta: Annotated[float | None, typer.Option(hidden=True)] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Compare methods over budgets, partitions and seeds: one table.

    The first eleven options take lists, with commas; every combination is run with every seed.
    Those that cannot be (noise that a method or a trust model has no use for) are left out and
    named.
    """
    options: dict[str, Any] = {
        "data": data,
        "method": method,
        "epsilon": epsilon,
        "partition": partition,
        "clients": clients,
        "sampling_rate": sampling_rate,
        "trust": trust,
        "rounds": rounds,
        "delta": delta,
        "unit": unit,
        "mechanism": mechanism,
        "quorum": quorum,
        "noise_source": noise_source,
        "seeds": seeds,
        "seed": seed,
        "secure_aggregation": secure_aggregation,
        "dropout": dropout,
        "ledger": ledger,
        "cap": cap,
        "cap_delta": cap_delta,
        "jobs": jobs,
        "engine": engine,
        "ray_address": ray_address,
        "resume": resume,
    }
    from fedcal.experiments.commands import run_compare

    run_compare(options, settings or [], config, out, quiet=quiet, as_json=json)


@app.command(cls=Listing)
def plan(
    clients: Annotated[int | None, typer.Option(help="Enrolled clients; needed.")] = None,
    rows_per_client: Annotated[
        float | None, typer.Option(help="A public nominal number of rows, not a count; needed.")
    ] = None,
    classes: Annotated[
        int | None, typer.Option(help="Of the model; needed, unless --data is given.")
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Budget of the whole run for each unit (inf).")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="Failure probability (1e-5).")] = None,
    unit: Annotated[str | None, typer.Option(help="<units> (user).")] = None,
    trust: Annotated[
        str | None,
        typer.Option(help="secagg | central | distributed | local (what fits epsilon)."),
    ] = None,
    sampling_rate: Annotated[
        float | None, typer.Option(help="A client takes part with this probability (1).")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of queries (the planner's).")] = None,
    quorum: Annotated[
        float | None, typer.Option(help="Trust distributed: share that must answer (0.9).")
    ] = None,
    mechanism: Annotated[str | None, typer.Option(help="As simulate's (auto).")] = None,
    partition: Annotated[
        str | None,
        typer.Option(help="iid | dirichlet:BETA | quantity:BETA | shards:N (dirichlet:0.1)."),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Shipped names to plan on (made-up rows of known truth).")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="Methods to try, with commas (all but the slowest).")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of all that is made up (0).")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for plan.json and config.toml.")] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Say what budget, rounds and clients buy, before anything runs: from public facts only."""
    options: dict[str, Any] = {
        "clients": clients,
        "rows_per_client": rows_per_client,
        "classes": classes,
        "epsilon": epsilon,
        "delta": delta,
        "unit": unit,
        "trust": trust,
        "sampling_rate": sampling_rate,
        "rounds": rounds,
        "quorum": quorum,
        "mechanism": mechanism,
        "partition": partition,
        "seed": seed,
    }
    from fedcal.experiments.planner.command import run_plan

    run_plan(options, data, method, out, quiet=quiet, as_json=json)


@app.command()
def train(
    data: Annotated[
        str | None, typer.Option(help=".npz, image folder, .txt, .tsv(.gz) or LEAF folder.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="cnn | resnet18 | lstm (cnn).")] = None,
    clients: Annotated[int | None, typer.Option(help="Simulated clients (100).")] = None,
    partition: Annotated[
        str | None,
        typer.Option(help="As simulate's (natural if the data name clients, else dirichlet:0.1)."),
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Of FedAvg (the model's).")] = None,
    sampling_rate: Annotated[
        float | None,
        typer.Option(help="Share of the clients in a round, one at least (0.1: 1 of 10)."),
    ] = None,
    local_epochs: Annotated[int | None, typer.Option(help="Of a client in a round (1).")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Of local SGD (the model's).")] = None,
    lr: Annotated[float | None, typer.Option(help="Of local SGD (the model's).")] = None,
    server_lr: Annotated[float | None, typer.Option(help="Of the server's step (1).")] = None,
    min_rows: Annotated[
        int | None, typer.Option(help="Clients with fewer rows are left out (0; text: 100).")
    ] = None,
    max_rows: Annotated[int | None, typer.Option(help="Rows of a client, at most (all).")] = None,
    evaluate_every: Annotated[
        int | None, typer.Option(help="Rounds between looks at the test rows (10).")
    ] = None,
    checkpoint_every: Annotated[
        int | None, typer.Option(help="Rounds between checkpoints in --out (10).")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of all that is drawn (0).")] = None,
    engine: Annotated[str | None, typer.Option(help="inline (inline).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what --out holds.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for model, logits and checkpoint.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file with these options.")] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Train a base model federatedly, by Flower's FedAvg; its logits are for calibration."""
    options: dict[str, Any] = {
        "data": data,
        "model": model,
        "clients": clients,
        "partition": partition,
        "rounds": rounds,
        "sampling_rate": sampling_rate,
        "local_epochs": local_epochs,
        "batch_size": batch_size,
        "lr": lr,
        "server_lr": server_lr,
        "min_rows": min_rows,
        "max_rows": max_rows,
        "evaluate_every": evaluate_every,
        "checkpoint_every": checkpoint_every,
        "seed": seed,
        "engine": engine,
    }
    from fedcal.experiments.training.command import run_train

    run_train(options, config, out, resume=resume, quiet=quiet, as_json=json)


@app.command()
def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Of the list; none = the list.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Files that get lines of their own, with commas.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="How many, from 0 on (the paper's).")] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes (the usable cores).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what --out holds.")] = False,
    ray_address: Annotated[
        str | None, typer.Option(help="Of a Ray cluster, or local: runs are Ray tasks.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for tables, figures, page and all runs.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit code 1 where results are not as expected.")
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the names.")] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run the papers' tables and figures again, beside what the papers print."""
    from fedcal.experiments.reproduce.command import run_reproduce

    run_reproduce(
        name,
        data,
        seeds,
        jobs,
        out,
        resume=resume,
        ray_address=ray_address,
        check=check,
        listed=listed,
        quiet=quiet,
        as_json=json,
    )


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Of simulate or compare.")],
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write the report of a result folder again: one HTML file that reads offline."""
    from fedcal.experiments.commands import run_report

    run_report(folder, quiet=quiet, as_json=json)


@app.command()
def export(
    calibrator: Annotated[Path, typer.Option(help="A calibrator.npz of an earlier run.")],
    out: Annotated[Path, typer.Option(help="ONNX (.onnx) or a PyTorch program (.pt2).")],
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write a calibrator for another runtime."""
    from fedcal.experiments.commands import run_export

    run_export(calibrator, out, quiet=quiet, as_json=json)


@app.command()
def apply(
    calibrator: Annotated[Path, typer.Option(help="A calibrator.npz of an earlier run.")],
    data: Annotated[str, typer.Option(help="A shipped name or a file; labels are optional.")],
    out: Annotated[Path, typer.Option(help="Probabilities: .npy, .npz or .csv.")],
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Apply a calibrator to all rows of a file, a test part after the others."""
    from fedcal.experiments.commands import run_apply

    run_apply(calibrator, data, out, quiet=quiet, as_json=json)


@app.command("flower-app")
def flower_app(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where `flwr run` will find it.")],
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write the folder that `flwr run` needs: a pyproject.toml with every key, no code."""
    from fedcal.experiments.commands import run_flower_app

    run_flower_app(folder, quiet=quiet, as_json=json)


@app.command()
def datasets(quiet: Quiet = False, json: Json = False) -> None:
    """List the data sets that ship with fedcal."""
    from fedcal.experiments.commands import run_datasets

    run_datasets(quiet=quiet, as_json=json)


def _later(name: str, text: str) -> None:
    def command() -> None:
        raise NotBuiltYet(f"the command '{name}'")

    anything = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
    app.command(name, hidden=True, help=text, context_settings=anything)(command)


for _name, _text in LATER.items():
    _later(_name, _text)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(_run(arguments))


def _run(arguments: list[str] | None) -> int:
    errors = Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False)
    warnings.showwarning = lambda message, *_: errors.print(f"fedcal: warning: {message}")
    warnings.simplefilter("always", UserWarning)
    try:
        code = app(arguments, standalone_mode=False)
    except FedcalError as e:
        word = "interrupted" if e.exit_code == INTERRUPTED else "error"
        errors.print(f"fedcal: {word}: {' '.join(str(e).split())}")
        return e.exit_code
    except click.ClickException as e:
        said = " ".join(e.format_message().split()) or "a command is missing"
        errors.print(f"fedcal: error: {said}")
        return InputError.exit_code
    except (KeyboardInterrupt, click.Abort):
        code = INTERRUPTED
    except MemoryError:
        errors.print("fedcal: error: there is not enough memory for this run")
        return FedcalError.exit_code
    except BrokenPipeError:
        return 0
    if code == INTERRUPTED:  # typer makes this of a KeyboardInterrupt
        errors.print("fedcal: interrupted; nothing was written")
    return code if isinstance(code, int) else 0
