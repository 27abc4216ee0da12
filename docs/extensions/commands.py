"""The directive `commands`: the command line as it is, so that its reference cannot go stale."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main
from docutils.nodes import Node
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from fedcal.experiments import cli


def built() -> dict[str, Any]:
    """Name -> command, without those that are not built yet."""
    group: Any = typer.main.get_command(cli.app)
    return {name: command for name, command in group.commands.items() if not command.hidden}


def markdown() -> Iterator[str]:
    """A section for each command: what it does, and a table of its options."""
    for name, command in built().items():
        yield from (f"## fedcal {name}", "", " ".join((command.help or "").split()), "")
        options = [p for p in command.params if p.name != "help"]
        arguments = [p for p in options if p.param_type_name == "argument"]
        words = " ".join(str(p.human_readable_name) for p in arguments)
        yield from ("```text", f"fedcal {name} {words}".rstrip() + " [OPTIONS]", "```", "")
        yield from ("| option | value | what |", "|---|---|---|")
        for p in options:
            yield f"| {_name(p)} | {_value(p)} | {_cell(p)} |"
        yield ""


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.human_readable_name}`"
    return ", ".join(f"`{text}`" for text in (*parameter.opts, *parameter.secondary_opts))


def _value(parameter: Any) -> str:
    if getattr(parameter, "is_flag", False):
        return ""
    kind = str(parameter.type.name)
    return f"{kind}, repeatable" if parameter.multiple else kind


def _cell(parameter: Any) -> str:
    text = cli.filled(getattr(parameter, "help", None) or "")
    text = " ".join(text.split()).replace("|", "\\|")
    return f"**needed.** {text}" if parameter.required else text


class Commands(SphinxDirective):
    """Every command of `fedcal`, in place of the directive."""

    def run(self) -> list[Node]:
        """Parse the generated Markdown where the directive stands."""
        return self.parse_text_to_nodes("\n".join(markdown()), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls."""
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True}
