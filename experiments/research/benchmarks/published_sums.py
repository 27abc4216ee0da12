"""Published costs of secure sums, beside which ours stand: `secure_sums.toml` as a table."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcal.core.pages import Table
from fedcal.experiments.report.tables import markdown
from fedcal.secure_aggregation.committee import EVERYBODY_UP_TO, Committee, default_threshold
from fedcal.secure_aggregation.keys import DIGEST_BYTES, SIGNATURE_BYTES
from fedcal.secure_aggregation.messages import CONFIRMATION_BYTES, message_bytes
from fedcal.storage.toml_files import read_toml

MEASURED = "secure_sums.json"
"""File of the benchmark's results, as it wrote them."""

KEY = 256
"""Bits of a public key and of a share of a secret, as Bonawitz et al. count them."""

SIZES = ((100, 5_000), (1000, 5_000), (100, 100_000), (1000, 100_000))
"""(clients, numbers) of the table."""

WORD = 64
"""Bits of a number in the table."""


def secagg_bits(clients: int, numbers: int, word: int) -> int:
    """Return the bits that a client sends and receives (Bonawitz et al. 2017).

    Two public keys of everybody, a sealed pair of shares for and from everybody, a share of
    everybody, and the masked vector. It gives the expansions that the paper prints.
    """
    return 2 * clients * KEY + (5 * clients - 4) * KEY + numbers * word


def lightsecagg_bits(clients: int, numbers: int, word: int) -> int:
    """Return the bits that a client sends and receives, by the construction of So et al. 2022.

    To and from each other client a coded piece of a mask, one of U - T parts as long as the vector
    together; then the masked vector and one sum of pieces. With T half of the clients and U 70 % of
    them, a choice of ours.
    """
    piece = math.ceil(numbers / (math.floor(0.7 * clients) - clients // 2)) * word
    return 2 * (clients - 1) * piece + numbers * word + piece


def contributor_bits(clients: int, numbers: int, word: int) -> int:
    """Return the bits that a site sends to our sum; the question it receives is not counted."""
    whole, _, _ = message_bytes(_committee(clients), 0)
    return 8 * whole + numbers * word


def member_bits(clients: int, numbers: int, word: int) -> int:
    """Return the further bits of a member of the committee: headers, seeds, its pieces."""
    committee = _committee(clients)
    _, header, sealed = message_bytes(committee, numbers)
    signed = committee.threshold * CONFIRMATION_BYTES + CONFIRMATION_BYTES
    signed += SIGNATURE_BYTES + DIGEST_BYTES + 3 * 4  # of what it opens, each part with its length
    pieces = len(committee.held_by(0)) * numbers * word
    return 8 * (clients * (header + sealed) + signed) + pieces


def _committee(clients: int) -> Committee:
    size = min(clients, EVERYBODY_UP_TO)
    return Committee.of_first(size, default_threshold(size))


BITS = {
    "bonawitz": secagg_bits,
    "lightsecagg": lightsecagg_bits,
    "contributor": contributor_bits,
    "member": member_bits,
}


def protocols() -> list[Mapping[str, Any]]:
    """Read the entries of the file."""
    found: list[Mapping[str, Any]] = read_toml(Path(__file__).with_name("secure_sums.toml"))[
        "protocols"
    ]
    return found


def trust() -> str:
    """Return the table of messages, secrets and trusted parties, as Markdown."""
    lines = [
        [
            f"[{p['name']}]({p['link']}), {p['paper']}",
            f"{p['exchanges']}; {p['more']}",
            p["keeps"],
            p["trust"],
            p["dropouts"],
        ]
        for p in protocols()
    ]
    headings = ("protocol", "exchanges", "kept between them", "trust", "dropouts")
    return markdown(Table("", headings, lines, left=tuple(range(5))))


def costs() -> str:
    """Bytes of a client where a formula gives them, and what is printed, as Markdown."""
    lines = []
    for p in protocols():
        bits = BITS.get(p.get("bytes", ""))
        known = [bits(n, m, WORD) / 8000 for n, m in SIZES] if bits else p.get("kilobytes", ())
        sizes = [f"{size:,.0f}" for size in known] or [""] * len(SIZES)
        lines.append([p["name"], *sizes, "; ".join(p["figures"])])
    headings = [f"{n} x {m:,}" for n, m in SIZES]
    return markdown(Table("", ("protocol", *headings, "published"), lines, left=(0, 5)))


def measured() -> str:
    """Return the stored measurements of `secure_sums.BENCHMARK`, as Markdown."""
    kept = json.loads(Path(__file__).with_name(MEASURED).read_text("utf-8"))
    rows = [
        {
            key: f"{value:.4g}" if isinstance(value, float) else str(value)
            for key, value in row.items()
        }
        for row in kept["rows"]
    ]
    return markdown(Table("", tuple(rows[0]), [tuple(row.values()) for row in rows], left=(1,)))
