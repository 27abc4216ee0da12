"""Parameters of the commands, by the docstrings of these: the fields of options, and shared ones.

The docstring of a command has, after what it does, a section for each group of `--help`: names of
parameters, each with what it is, below it and indented; ` : ` separates from the name what stands
for it in the usage (section `Arguments`), or the option's own name. `Examples` are command lines.
"""

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING
from pathlib import Path
from typing import Annotated, Any, Optional, TypeAlias, TypeVar

import typer

from fedcal.core import options

Command = TypeVar("Command", bound=Callable[..., None])

FILES = "Files and output"
LISTS = "One value or a comma-separated list: every combination is run"
FIRST = "Most used"
SECURE = "Secure sums: committees"
"""Groups in `--help`, beside those of the options themselves."""

_SECURE = ("secure_aggregation", "committee", "colluding", "quorum")
_LAST = (options.DATA, options.PRIVACY, options.RUNNING, SECURE, options.SITES)


def shared(group: str, help: str) -> Any:
    """Return the annotation of an option that several commands have."""
    return typer.Option(help=help, rich_help_panel=group)


Quiet: TypeAlias = Annotated[bool, shared(FILES, "Print only warnings and errors.")]
Json: TypeAlias = Annotated[bool, shared(FILES, "Print the result as JSON.")]
Overwrite: TypeAlias = Annotated[
    bool, shared(FILES, "Replace earlier results of this command in --out.")
]
NoReport: TypeAlias = Annotated[
    bool, shared(FILES, "Write no report and figures; fedcal report makes them later.")
]
ConfigFile: TypeAlias = Annotated[Path | None, shared(FILES, "TOML file with these options.")]


def sections(command: Callable[..., Any]) -> dict[str, dict[str, str]]:
    """Return the sections of a command's docstring: title -> line -> what is indented below it."""
    text = inspect.cleandoc(command.__doc__ or "")
    _, *parts = re.split(r"^(\S.*)\n-{3,}$", text, flags=re.MULTILINE)
    texts = (re.split(r"\n(?=\S)", body.strip()) for body in parts[1::2])
    return dict(zip(parts[::2], (dict(map(_entry, text)) for text in texts), strict=True))


def _entry(text: str) -> tuple[str, str]:
    head, _, rest = text.partition("\n")
    return head, " ".join(rest.split())


def documented(command: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a command, with what its docstring says of them."""
    known = inspect.signature(command, eval_str=True).parameters
    own, groups = dict(known), sections(command)
    groups.pop("Examples", None)
    for group, entries in groups.items():
        for head, help in entries.items():
            name, _, called = head.partition(" : ")
            if hasattr(known[name].annotation, "__metadata__"):  # another decorator was here
                continue
            if group == "Arguments":
                shown = typer.Argument(metavar=called, help=help or None, show_default=False)
            else:
                panel = None if group == "Options" else group
                names = [called] if called else []
                shown = typer.Option(*names, help=help, rich_help_panel=panel)
            own[name] = known[name].replace(annotation=Annotated[known[name].annotation, shown])
    return list(own.values())


def with_options(
    table: type[Any],
    *names: str,
    but: Collection[str] = (),
    single: Collection[str] = (),
    unset: Mapping[str, str] | None = None,
) -> Callable[[Command], Command]:
    """Give a command the options of a dataclass; it gets them as keywords, None where not given.

    Those of `MOST_USED` are the first group in `--help`; of a command with all options, those that
    few need are in `--help-all`.

    Parameters
    ----------
    table : type
        The dataclass.
    *names : str
        Only these; none = all.
    but : collection of str
        Not these.
    single : collection of str
        Options that are hidden, for they are refused: of single runs. The axes of a comparison
        take lists then, as text with commas.
    unset : mapping of str to str
        What holds where nothing is given, where this is not what the field says.
    """
    known = options.options_of(table)

    def parameter(name: str) -> inspect.Parameter:
        option = known[name]
        many = bool(single) and option.axis
        group = SECURE if name in _SECURE else option.group
        often = name in options.MOST_USED and not single
        shown = typer.Option(
            help=_described(option, (unset or {}).get(name)),
            rich_help_panel=LISTS if many else FIRST if often else group,
            hidden=name in single,
        )
        kind: Any = option.kind if option.kind in (bool, int, float, str) else list[str]
        return inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[Optional[str if many else kind], shown],  # noqa: UP045  variables
        )

    def given(command: Command) -> Command:
        own = [p for p in documented(command) if p.kind is not p.VAR_KEYWORD]
        made = [parameter(name) for name in names or known if name not in but]
        signature = inspect.Signature(sorted([*made, *own], key=_place))
        command.__signature__ = signature  # type: ignore[attr-defined]  # which typer reads
        if not names:
            rare = {
                n
                for n, one in known.items()
                if n not in options.MOST_USED and one.group != options.TRAINING
            }
            command.rare = rare  # type: ignore[attr-defined]  # which `load_command` reads
        return command

    return given


def _place(parameter: inspect.Parameter) -> tuple[int, int]:
    """Return the place of a parameter in `--help`: of its group, and in the first one its own."""
    (shown,) = parameter.annotation.__metadata__
    group = shown.rich_help_panel
    if group in (FIRST, LISTS):
        return -1, (*options.MOST_USED, parameter.name).index(parameter.name)
    return _LAST.index(group) + 1 if group in _LAST else 0, 0


def _described(option: options.Option, unset: str | None) -> str:
    """Return the help of an option with its default."""
    default = option.default
    shown = f"{default:g}" if isinstance(default, float) else str(default)
    without = unset or option.unset or ("" if default in (None, MISSING) else shown)
    if without and without != options.REQUIRED:
        without = f"default: {without}"
    return f"{option.help} ({without})." if without else f"{option.help}."
