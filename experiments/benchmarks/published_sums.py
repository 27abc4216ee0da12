"""Published costs of secure sums, beside which ours stand: `secure_sums.toml` as a table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcal.experiments.config import read_toml
from fedcal.experiments.show.tables import TextTable, markdown

KEY = 256
"""Bits of a public key and of a share of a secret, as Bonawitz et al. count them."""

SIZES = ((100, 5_000), (1000, 5_000), (100, 100_000), (1000, 100_000))
"""(clients, numbers) of the table."""

WORD = 64
"""Bits of a number in the table."""


def secagg_bits(clients: int, numbers: int, word: int) -> int:
    """What a client sends and gets, both together (Bonawitz et al. 2017).

    Two public keys of everybody, a sealed pair of shares for and from everybody, a share of
    everybody, and the masked vector. It gives the expansions that the paper prints.
    """
    return 2 * clients * KEY + (5 * clients - 4) * KEY + numbers * word


def lightsecagg_bits(clients: int, numbers: int, word: int) -> int:
    """What a client sends and gets, by the construction of So et al. 2022.

    To and from each other client a coded piece of a mask, one of U - T parts as long as the vector
    together; then the masked vector and one sum of pieces. With T half of the clients and U 70 % of
    them, a choice of ours.
    """
    piece = math.ceil(numbers / (math.floor(0.7 * clients) - clients // 2)) * word
    return 2 * (clients - 1) * piece + numbers * word + piece


BITS = {"secagg": secagg_bits, "lightsecagg": lightsecagg_bits}


def protocols() -> list[Mapping[str, Any]]:
    """The entries of the file."""
    found: list[Mapping[str, Any]] = read_toml(Path(__file__).with_name("secure_sums.toml"))[
        "protocols"
    ]
    return found


def trust() -> str:
    """Who speaks, who keeps secrets, who is trusted, as Markdown."""
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
    return markdown(TextTable(headings, lines, left=range(5)))


def costs() -> str:
    """Bytes of a client where a formula gives them, and what is printed, as Markdown."""
    lines = []
    for p in protocols():
        bits = BITS.get(p.get("bytes", ""))
        known = [bits(n, m, WORD) / 8000 for n, m in SIZES] if bits else p.get("kilobytes", ())
        sizes = [f"{size:,.0f}" for size in known] or [""] * len(SIZES)
        lines.append([p["name"], *sizes, "; ".join(p["figures"])])
    headings = [f"{n} x {m:,}" for n, m in SIZES]
    return markdown(TextTable(("protocol", *headings, "published"), lines, left=(0, 5)))
