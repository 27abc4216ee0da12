"""The command `fedcal`. One clear line on stderr and exit code 2 for anything not allowed."""

from __future__ import annotations

import re
import sys
import warnings
from importlib import import_module

import click
import typer
import typer.main
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from fedcal import __version__
from fedcal.core.checks import one_of
from fedcal.core.errors import FedcalError, InputError
from fedcal.experiments.report.terminal import console

COMMANDS = {
    "simulate": "Calibrate a model over simulated clients: one method, one run.",
    "evaluate": "Say how good a model is, and how well calibrated, from one private release; or "
    "read an earlier run's release again: another threshold, a calibrator, drift.",
    "compare": "Compare methods over budgets, partitions and seeds: one table. What cannot be "
    "(noise that a method or a trust model has no use for) is left out and named.",
    "plan": "Say from public facts what budget, rounds and clients buy, before anything runs.",
    "train": "Train a model over clients or in one place, with privacy (DP-SGD, DP-FedAvg) or "
    "without; its logits are for calibration.",
    "pipeline": "Train, recalibrate, make prediction sets and evaluate under one budget, from a "
    "file: one ledger, one report.",
    "features": "Make features of images or texts by a public model, for fedcal train.",
    "reproduce": "Run the papers' tables and figures again, beside what the papers print.",
    "report": "Write the report of a result folder again: one HTML file that reads offline.",
    "export": "Write a calibrator, or prediction sets, for another runtime.",
    "apply": "Apply a calibrator, or prediction sets, to all rows of a file, a test part after "
    "the others.",
    "site": "Be a site of a federation: answer a SuperLink's questions about rows that stay here.",
    "site key": "Make this site's signing key, or show the public half of one that is there.",
    "site ledger": "What a site has spent, by whom it was asked, for what, and what is left.",
    "site restored": "Once a backup of a site's folder, or of its machine, was put back, or "
    "another folder takes the place of a lost one: close all jobs that were under way, and book "
    "what was spent.",
    "site federation": "Check a federation.toml, show its digest for comparison by telephone, or "
    "sign it as the federation's coordinator.",
    "deploy": "Runs over real sites: run starts one and follows it, resume goes on with one, "
    "status shows the sites and a run, stop ends a run, register lets sites in by public keys.",
    "flower-app": "Write the folder that `flwr run` needs: a pyproject.toml with every key.",
    "datasets": "List the data sets that ship with fedcal.",
}
"""Name -> what it does; a name of two words is a command below the first one."""

_MODULES = {
    "simulate": "simulate",
    "evaluate": "evaluate",
    "compare": "compare",
    "site": "site.start",
    "site key": "site.federation_file",
    "site federation": "site.federation_file",
    "site ledger": "site.site_ledger",
    "site restored": "site.site_ledger",
    "deploy": "deploy",
    **dict.fromkeys(("plan", "train", "features", "reproduce"), "studies"),
    "apply": "apply",
    "pipeline": "pipeline",
    **dict.fromkeys(("report", "export", "flower-app", "datasets"), "exports"),
}
"""Name -> the module of `fedcal.experiments.cli` that has the function."""

EXAMPLES = {
    "simulate": (
        "fedcal simulate --epsilon 1 --out run",
        "fedcal simulate --data rows.csv --partition natural --method fedbbq --set weighting=none",
    ),
    "evaluate": (
        "fedcal evaluate --data imdb-binary --epsilon 1 --unit example --out run",
        "fedcal evaluate --data rows.npz --by group --epsilon 1 --unit example",
        "fedcal evaluate --calibrator run/calibrator.npz --epsilon 1",
        "fedcal evaluate --release run/release.npz --recall 0.95",
    ),
    "compare": (
        "fedcal compare --method fednewton,fedtemp,fedbbq --epsilon inf,8,1 --seeds 3 --out sweep",
        "fedcal compare --method 'fedbbq[weighting=none],fedbbq' --clients 100,1000",
        "fedcal compare --out sweep --resume",
    ),
    "plan": (
        "fedcal plan --clients 100 --rows-per-client 50 --classes 10 --epsilon 1",
        "fedcal plan --clients 20 --rows-per-client 500 --data imdb-binary --epsilon 4 --out plan",
        "fedcal plan --method conformal --set alpha=0.1 --clients 100 --rows-per-client 50 "
        "--classes 10 --epsilon 1",
    ),
    "train": (
        "fedcal train --data adult-features --epsilon 8 --delta 1e-5 --out model",
        "fedcal train --data images.npz --clients 20 --rounds 50 --out model",
        "fedcal train --data leaf --model lstm --min-rows 100 --out model",
    ),
    "pipeline": ("fedcal pipeline pipeline.toml --out run",),
    "features": (
        "fedcal features images.npz --model random-filters --out features.npz",
        "fedcal features cifar10 --model efficientnet-lite0 --size 512 --corruption all "
        "--out features.npz",
        "fedcal features reviews.csv --model wordllama --out features.npz",
    ),
    "reproduce": (
        "fedcal reproduce --list",
        "fedcal reproduce maddock-table2 --seeds 1 --out again",
    ),
    "report": ("fedcal report run",),
    "export": ("fedcal export --calibrator run/calibrator.npz --out calibrator.onnx",),
    "apply": (
        "fedcal apply --calibrator run/calibrator.npz --data new.csv --out probabilities.csv",
        "fedcal apply --calibrator run/sets.npz --data new.csv --out sets.csv",
    ),
    "site": (
        "fedcal site --data rows.npz --dry-run",
        "fedcal site --data rows.npz --fleet superlink.example:9092 --root-certificates ca.crt "
        "--key site.key",
    ),
    "site key": ("fedcal site key signing.pem",),
    "site ledger": ("fedcal site ledger", "fedcal site ledger --state state --json"),
    "site restored": (
        "fedcal site restored --state state",
        "fedcal site restored --state state --spent 1.5,1e-6,example",
    ),
    "site federation": (
        "fedcal site federation federation.toml",
        "fedcal site federation federation.toml --sign coordinator.pem",
    ),
    "deploy": (
        "fedcal deploy register site-a.pub --control 127.0.0.1:8000 --root-certificates ca.crt",
        "fedcal deploy status --control 127.0.0.1:8000 --root-certificates ca.crt",
        "fedcal deploy run --control 127.0.0.1:8000 --root-certificates ca.crt --clients 3 "
        "--method fedoneshot --epsilon 1 --unit example --out run",
        "fedcal deploy stop --out run",
        "fedcal deploy resume --out run",
    ),
    "flower-app": ("fedcal flower-app app",),
    "datasets": ("fedcal datasets --json",),
}
"""Name -> command lines, as `--help` shows them."""

_HELP = {"help_option_names": ["--help", "-h"]}

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


def load_command(name: str) -> click.Command:
    """A command with its options; only now its module is imported."""
    one_of("command", name, COMMANDS, "fedcal --help")
    module = import_module(f"fedcal.experiments.cli.{_MODULES[name]}")
    examples = [f"    {escape(example)}" for example in EXAMPLES[name]]
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    command = getattr(module, f"{re.sub('[ -]', '_', name)}_command")
    epilog = "\n\n".join(["For example:", *examples])
    alone.command(name, help=COMMANDS[name], epilog=epilog, context_settings=_HELP)(command)
    return _versioned(typer.main.get_command(alone), hidden=True)


def _versioned(command: click.Command, *, hidden: bool = False) -> click.Command:
    """Add the options --version and -V."""
    said = "fedcal %(version)s"
    option = click.version_option(
        __version__, "--version", "-V", message=said, help="Show the version.", hidden=hidden
    )
    return option(command)


class Commands(TyperGroup):
    """All commands: listed by what they do, loaded when they are called."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first one or two arguments name, and the other arguments."""
        name, rest = args[0], args[1:]
        below = any(known.startswith(f"{name} ") for known in COMMANDS)
        if below and rest and not rest[0].startswith("-"):
            name, rest = f"{name} {rest[0]}", rest[1:]
        return name, load_command(name), rest


app = Commands(
    name="fedcal",
    help="Private, federated calibration of classifiers.",
    commands={name: TyperCommand(name, help=text) for name, text in COMMANDS.items()},
    no_args_is_help=True,
    context_settings=_HELP,
)
_versioned(app)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(_run(arguments))


def _run(arguments: list[str] | None) -> int:
    errors = console(stderr=True)
    warnings.showwarning = lambda message, *_: errors.print(
        f"fedcal: warning: {' '.join(str(message).split())}"
    )
    warnings.simplefilter("always", UserWarning)
    try:
        code = app(args=arguments, standalone_mode=False)
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
