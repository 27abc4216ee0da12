"""The reference of the commands, from the command line itself, so that it cannot go stale."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedcal.cli.main import COMMANDS, load_command


def markdown() -> Iterator[str]:
    """Of each command what it does, examples, and its options in the groups of `--help`."""
    for name in COMMANDS:
        command: Any = load_command(name)
        _, *examples = command.epilog.replace("\\[", "[").split("\n\n")
        shown = [p for p in command.params if not getattr(p, "hidden", False)]
        words = [p.human_readable_name for p in shown if p.param_type_name == "argument"]
        yield from (f"## fedcal {name}", "", command.help, "")
        yield from ("```text", " ".join(["fedcal", name, *words, "[OPTIONS]"]), "```", "")
        yield from ("```text", *(example.strip() for example in examples), "```", "")
        yield from ("| option | value | what |", "|---|---|---|")
        for group in dict.fromkeys(p.rich_help_panel for p in shown):
            if group is not None:
                yield f"| **{group}** | | |"
            for p in shown:
                if p.rich_help_panel == group:
                    yield f"| {_name(p)} | {_value(p)} | {_meaning(p)} |"
        yield ""


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.human_readable_name}`"
    return ", ".join(f"`{text}`" for text in parameter.opts)


def _value(parameter: Any) -> str:
    if getattr(parameter, "is_flag", False):
        return ""
    kind = str(parameter.type.name)
    return f"{kind}, repeatable" if parameter.multiple else kind


def _meaning(parameter: Any) -> str:
    text = (parameter.help or "").replace("|", "\\|")
    return f"**needed.** {text}" if parameter.required else text
