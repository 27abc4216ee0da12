"""`fedcal datasets`: what ships with fedcal."""

from __future__ import annotations

import dataclasses

from fedcal import datasets
from fedcal.experiments.commands.parameters import Json, Quiet
from fedcal.experiments.files import to_json
from fedcal.experiments.terminal import console

EXAMPLES = ("fedcal datasets --json",)


def command(quiet: Quiet = False, json: Json = False) -> None:
    """Show the list."""
    entries = [dataclasses.asdict(entry) for entry in datasets.catalogue()]
    if json:
        print(to_json(entries), end="")
        return
    if quiet:
        return
    to = console(markup=True)
    to.print("Data sets that ship with fedcal (--data NAME):")
    for entry in datasets.catalogue():
        test = f"{entry.test_rows:,} test rows" if entry.test_rows else "half of them for testing"
        clients = f", {entry.clients} natural clients" if entry.clients else ""
        to.print(
            f"\n[bold]{entry.name}[/bold]: {entry.description}\n"
            f"  {entry.classes} classes, {entry.rows:,} rows, {test}{clients}; {entry.input}\n"
            f"  {entry.source}, {entry.author}, {entry.year}; {entry.licence}"
        )
