"""The directive `registered`: what stands in a registry; a new member needs no line here."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any, ClassVar

from docutils.nodes import Node
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


def markdown(name: str, modules: bool, but: str) -> Iterator[str]:
    """What stands in the registry `name`: its classes, or the modules that its members are from."""
    module, _, registry = name.rpartition(".")
    members = [m for key, m in getattr(import_module(module), registry).items() if key != but]
    if modules:
        for where in sorted({member.__module__ for member in members}):
            yield from (f"## {where}", "", *block(f".. automodule:: {where}"))
    else:
        lines = [f".. autoclass:: {public(m)}" for m in members]
        yield from block(*(line for first in lines for line in (first, "   :no-members:")))


def public(member: type) -> str:
    """The shortest name under which it can be imported."""
    parts = member.__module__.split(".")
    for number in range(1, len(parts)):
        package = ".".join(parts[:number])
        if vars(import_module(package)).get(member.__name__) is member:
            return f"{package}.{member.__name__}"
    return f"{member.__module__}.{member.__name__}"


def block(*lines: str) -> list[str]:
    """Lines of reStructuredText in a page of Markdown."""
    return ["```{eval-rst}", *lines, "```", ""]


class Registered(SphinxDirective):
    """`{registered} module.REGISTRY`: classes by themselves, or with `:modules:` their modules.

    `:but: KEY` leaves one out, which is told elsewhere.
    """

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {"modules": directives.flag, "but": str}

    def run(self) -> list[Node]:
        """Parse the generated Markdown where the directive stands."""
        name, but = self.arguments[0], self.options.get("but", "")
        text = "\n".join(markdown(name, "modules" in self.options, but))
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls."""
    app.add_directive("registered", Registered)
    return {"parallel_read_safe": True}
