"""List the data sets that ship with fedcal."""

from __future__ import annotations

import dataclasses
from typing import Any

from fedcal import datasets
from fedcal.experiments.cli.parameters import Json, Quiet
from fedcal.experiments.report.terminal import console
from fedcal.experiments.runs.files import to_json

EXAMPLES = ("fedcal datasets --json",)


def command(quiet: Quiet = False, json: Json = False) -> None:
    """Show the list of data sets."""
    if json:
        entries: list[Any] = [*datasets.catalogue(), *datasets.feature_sets()]
        print(to_json([dataclasses.asdict(entry) for entry in entries]), end="")
        return
    if quiet:
        return
    to = console(markup=True)
    to.print("Data sets that ship with fedcal (--data NAME):")
    for entry in datasets.catalogue():
        test = f"{entry.test_rows:,} test rows" if entry.test_rows else "half of them for testing"
        clients = f", {entry.clients:,} natural clients" if entry.clients else ""
        clients += f", {entry.groups} groups" if entry.groups else ""
        to.print(
            f"\n[bold]{entry.name}[/bold]: {entry.description}\n"
            f"  {entry.classes} classes, {entry.rows:,} rows, {test}{clients}; {entry.input}\n"
            f"  {entry.source}, {entry.author}, {entry.year}; {entry.licence}"
        )
    to.print("\nFeatures to train on (fedcal train --data NAME):")
    for features in datasets.feature_sets():
        groups = f", {features.groups} groups" if features.groups else ""
        to.print(
            f"\n[bold]{features.name}[/bold]: {features.description}\n"
            f"  {features.classes} classes, {features.rows:,} rows, "
            f"{features.test_rows:,} test rows{groups}; {features.features} features\n"
            f"  {features.source}, {features.author}, {features.year}; {features.licence}"
        )
