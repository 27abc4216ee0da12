"""The command `fedcal`. One clear line on stderr and exit code 2 for anything not allowed."""

import ast
import copy
import inspect
import re
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import click
import typer
import typer.main
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from fedcal import __version__
from fedcal.core import checks
from fedcal.core.checks import FedcalError, InputError
from fedcal.results.terminal import console

GROUPS = {
    "Try out, on one machine": {
        "simulate": "simulate",
        "check": "check",
        "evaluate": "evaluate",
        "compare": "compare",
        "plan": "plan",
        "train": "train",
    },
    "Use what came out": {"report": "files:report", "apply": "apply", "export": "files:export"},
    "Take part in a study, as a site": {
        "site join": "site:join",
        "site accept": "site:accept",
        "site start": "site:start",
        "site status": "site:status",
        "site recalibrate": "site:recalibrate",
        "site restored": "site:restored",
    },
    "Coordinate a study of named sites": {
        "study init": "study:init",
        "study kit": "study:kit",
        "study seal": "study:seal",
        "study serve": "study:serve",
        "study run": "study:run",
        "study status": "study:status",
        "study verify": "study:verify",
    },
    "Set up": {"flower-app": "files:flower_app", "datasets": "files:datasets", "doctor": "doctor"},
}
"""Heading of the list of commands -> name -> its module in `fedcal.cli`.

A name of two words is a command below the first. A module's docstring is the command's help, of
which the list shows the first clause; its function `command` does it, and tells of parameters and
examples (`fedcal.cli.parameters`). Of several commands in a module (`module:function`) the
docstring of each function is the help, too.
"""

COMMANDS = {"site": "study:overview", "study": "study:overview"}
for _commands in GROUPS.values():
    COMMANDS |= _commands

ALL = "--help-all"
_HELP = {"help_option_names": ["--help", "-h"]}

_PLAIN: Any = {kind: copy.copy(kind) for kind in (click.INT, click.FLOAT)}
_PLAIN[click.INT]._number_class = partial(checks.number_in, kind=int)
_PLAIN[click.FLOAT]._number_class = checks.number_in

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


def help_of(name: str) -> str:
    """Return the docstring of a command, whose module is read and not imported."""
    module, _, function = COMMANDS[name].partition(":")
    path = Path(__file__).with_name(f"{module}.py")
    tree: Any = ast.parse(path.read_text("utf-8"))
    if function:
        tree = next(node for node in tree.body if getattr(node, "name", "") == function)
    text = re.split(r"\n.+\n-{3,}\n", ast.get_docstring(tree) or "")[0]
    return " ".join(text.split())


def load_command(name: str, *, every: bool = True) -> click.Command:
    """Return a command with its options, of which `every` one or the usual ones are in its help.

    Only now its module is imported.
    """
    checks.check_kept(f"fedcal {name}")
    checks.one_of("command", name, COMMANDS, "fedcal --help")
    place, _, function = COMMANDS[name].partition(":")
    module = import_module(f"fedcal.cli.{place}")
    command = getattr(module, function or "command")
    rare = () if every else getattr(command, "rare", ())
    return made_of(command, name, help_of(name), rare)


def made_of(command: Any, name: str, about: str, rare: Sequence[str] = ()) -> click.Command:
    """Return the command of a function whose docstring tells of parameters and examples."""
    from fedcal.cli import parameters

    examples = parameters.sections(command)["Examples"].items()
    lines = (f"    {escape(' '.join(words).strip())}" for words in examples)
    epilog = "\n\n".join(["For example:", *lines])
    if rare:
        epilog += f"\n\nMore options, of ledgers, secure sums and sites: fedcal {name} {ALL}"
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    known = parameters.documented(command)
    command.__signature__ = inspect.Signature(known)
    alone.command(name, help=about, epilog=epilog, context_settings=_HELP)(command)
    made: Any = typer.main.get_command(alone)
    of = {parameter.name: parameter.annotation.__metadata__[0] for parameter in known}
    for argument in made.params:
        argument.type = _PLAIN.get(argument.type, argument.type)
        argument.hidden = getattr(argument, "hidden", False) or argument.name in rare
        argument.secondary_opts = []  # no --no-... beside a flag
        if isinstance(argument, click.Argument):  # click 8.5 drops the help that typer sets
            argument.help = of[argument.name].help
    return cast("click.Command", made)


class Commands(TyperGroup):
    """All commands: listed by what they do, loaded when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        """Return a command as the list shows it, in one line."""
        panel = next((title for title, names in GROUPS.items() if cmd_name in names), "")
        clause = re.split(r"[.:;] |\.$", help_of(cmd_name))[0]
        hidden = cmd_name in ("site", "study", "site restored")  # `fedcal site` shows all
        return TyperCommand(cmd_name, help=clause, rich_help_panel=panel, hidden=hidden)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first one or two arguments name, and the other arguments."""
        name, rest = args[0], args[1:]
        below = any(known.startswith(f"{name} ") for known in COMMANDS)
        if below and rest and not rest[0].startswith("-"):
            name, rest = f"{name} {rest[0]}", rest[1:]
        for word in rest:
            checks.check_kept(f"fedcal {name} {word.partition('=')[0]}")
        rest = [_HELP["help_option_names"][0] if word == ALL else word for word in rest]
        return name, load_command(name, every=ALL in args), rest


app = Commands(
    name="fedcal",
    help="Private, federated calibration of classifiers.",
    no_args_is_help=True,
    context_settings=_HELP,
)
_VERSION = {"message": "fedcal %(version)s", "help": "Show the version."}
click.version_option(__version__, "--version", "-V", **_VERSION)(app)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(exit_code_of(arguments))


def exit_code_of(arguments: list[str] | None, command: click.Command = app) -> int:
    """Run a command and return its exit code; what is wrong is one line on stderr."""
    errors = console(stderr=True)
    warnings.showwarning = lambda message, *_: errors.print(
        f"fedcal: warning: {' '.join(str(message).split())}"
    )
    warnings.simplefilter("always", UserWarning)
    try:
        code = command(args=arguments, prog_name=command.name, standalone_mode=False)
    except FedcalError as e:
        word = "interrupted" if e.exit_code == INTERRUPTED else "error"
        errors.print(f"fedcal: {word}: {' '.join(str(e).split())}")
        return e.exit_code
    except click.ClickException as e:
        text = " ".join(e.format_message().split()) or "a command is missing"
        if any("--data" in p.opts for p in getattr(getattr(e, "ctx", None), "command", app).params):
            text = re.sub(r"argument \((\S+\.(csv|npz|parquet))\)", r"argument: --data \1?", text)
        errors.print(f"fedcal: error: {text}")
        return InputError.exit_code
    except (KeyboardInterrupt, click.Abort):
        code = INTERRUPTED
    except MemoryError:
        errors.print("fedcal: error: there is not enough memory for this run")
        return FedcalError.exit_code
    except BrokenPipeError:
        return 0
    except OSError as e:  # what nobody expected, such as a folder that this user may not look into
        errors.print(f"fedcal: error: cannot use {e.filename}: {checks.reason(e)}")
        return InputError.exit_code
    if code == INTERRUPTED:  # typer makes this of a KeyboardInterrupt
        errors.print("fedcal: interrupted; nothing was written")
    return code if isinstance(code, int) else 0
