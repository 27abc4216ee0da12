"""Check a federation.toml and show its digest, or sign it as its coordinator.

Sites compare the digest by telephone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcal.core.errors import InputError
from fedcal.experiments.cli.parameters import FILES, other
from fedcal.experiments.report.tables import TextTable, print_table
from fedcal.experiments.report.terminal import console
from fedcal.secure_aggregation.keys import read_key
from fedcal.secure_aggregation.roster import Roster, in_groups
from fedcal.storage.atomic import whole_file

EXAMPLES = (
    "fedcal site federation federation.toml",
    "fedcal site federation federation.toml --sign coordinator.pem",
)


_SHOWN = 100
"""Sites in the table; a federation may have 100,000."""


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The federation.toml.")],
    sign: Annotated[
        Path | None,
        other(FILES, "The coordinator's private key: add its signature to FILE.", "--sign"),
    ] = None,
) -> None:
    """Check, show and sign the federation file."""
    roster = Roster.read(file)
    if sign is not None:
        roster = _sign(file, roster, sign)
    committee = roster.committee
    to = console()
    to.print(f"{roster.name}: {len(roster.sites)} sites. Compare this digest with the other sites:")
    to.print(f"\n{in_groups(roster.digest)}\n")
    classes = roster.class_digest or "not said"
    signed = roster.coordinator.hex() if roster.coordinator else "nobody"
    facts = (
        ("digest, as in site.toml", roster.digest),
        ("digest of the classes", classes),
        ("signed by", signed),
        ("members of the committee", f"{len(committee.members)}"),
        ("members that open a sum", f"{committee.threshold} (threshold)"),
        ("members who may be absent", f"{committee.dropouts}"),
        ("members who may work with the server", f"{committee.colluding}"),
    )
    for name, value in facts:
        to.print(f"{name}: {value}")
    members = set(committee.members)
    rows = [
        (str(number), site.name, "yes" if number in members else "", site.key.hex())
        for number, site in enumerate(roster.sites[:_SHOWN])
    ]
    to.print()
    print_table(to, TextTable(("site", "name", "member", "public key"), rows, left=(1, 2, 3)))
    if more := len(roster.sites) - len(rows):
        to.print(f"and {more:,} more")


def _sign(file: Path, roster: Roster, key: Path) -> Roster:
    """Add the signature at the end of the file; whatever else stands there stays."""
    if roster.coordinator is not None:
        raise InputError(
            f"{file} is signed by {roster.coordinator.hex()}: take its [signature] out first"
        )
    signed = roster.signed(read_key(key))
    text = file.read_text("utf-8").rstrip() + "\n" + signed.signature_toml()
    with whole_file(file) as out:
        out.write(text.encode())
    return Roster.read(file)
