"""Show the steps of a study: named sites, one private release a quarter, a verdict for each."""

from __future__ import annotations

from fedcal.experiments.report.tables import TextTable, print_table
from fedcal.experiments.report.terminal import console

EXAMPLES = ("fedcal study",)

_WAY = (
    ("coordinator", "study init"),
    ("coordinator", "study check"),
    ("coordinator", "study kit"),
    ("each site", "site join"),
    ("coordinator", "study seal"),
    ("each site", "site accept"),
    ("server", "study serve"),
    ("each site", "site start"),
    ("coordinator", "study run"),
    ("anybody", "study verify"),
    ("coordinator", "study sign"),
    ("each site", "site status"),
)
"""Who calls what, in this order."""


def command() -> None:
    """Show who calls what."""
    from fedcal.experiments.cli.main import help_of

    rows = [(who, f"fedcal {name}", help_of(name)) for who, name in _WAY]
    print_table(console(), TextTable(("who", "command", "what"), rows, left=(1, 2)), edge=True)
    console().print("fedcal study COMMAND --help explains a command.")
