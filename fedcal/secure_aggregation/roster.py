"""The roster of a federation: its sites, their keys, and who opens sums. The server has no say.

A coordinator collects the sites' public keys and seals them with the study; each site pins the
roster by its digest, which people compare by telephone.
The coordinator is not the server: whoever chooses the keys of the committee could be the
committee.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import tomli_w

from fedcal.core.checks import InputError, damaged, different, like, one_of, same, whole
from fedcal.core.naming import one_form
from fedcal.secure_aggregation import keys
from fedcal.secure_aggregation.committee import Committee
from fedcal.storage.toml_files import read_as, record_of

MOST_SITES = 100_000
MOST_BYTES = 1 << 25
"""Of a roster as text or as a file: 100,000 sites with names of 200 bytes."""

_LONGEST_NAME = 64


@dataclass(frozen=True)
class Member:
    """A site of a federation.

    Attributes
    ----------
    name
        what people call it: printable, at most 64 characters
    key
        its Ed25519 public key, 32 bytes
    """

    name: str
    key: bytes

    def __post_init__(self) -> None:
        check_name("a site's name", self.name)
        same(f"length of the key of site {self.name!r}", len(self.key), keys.KEY_BYTES)


@dataclass(frozen=True)
class Roster:
    """Sites of a federation and the committee that opens sums; equal digests, equal rosters.

    Formal guarantee: `digest` is of the name, the sites in their order with names and keys, the
    committee, its threshold and the classes; under a collision-free SHA-256 nobody can change one
    of these and keep the digest. Layout, comments and order of keys of the file do not matter.

    Attributes
    ----------
    name
        of the federation
    sites
        numbered by place, from 0
    committee
        of numbers of sites
    class_digest
        `fedcal.core.naming.digest_of` of the names of the classes; "" = not said

    Raises
    ------
    InputError
        If a name or key occurs twice, there are more than 100,000 sites, or a member is no site.
    """

    name: str
    sites: tuple[Member, ...]
    committee: Committee
    class_digest: str = ""

    def __post_init__(self) -> None:
        check_name("the federation's name", self.name)
        whole("the number of sites", len(self.sites), 2, MOST_SITES)
        different("sites of one name", (one_form(site.name).casefold() for site in self.sites))
        different("sites of one key", (site.key.hex() for site in self.sites))
        whole("a member of the committee", self.committee.members[-1], 0, len(self.sites) - 1)
        if self.class_digest != "":
            check_digest("the class digest", self.class_digest)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical text, 64 hexadecimal digits."""
        return keys.digest("roster", self.to_text().encode("ascii")).hex()

    @cached_property
    def _numbers(self) -> dict[bytes, int]:
        return {site.key: number for number, site in enumerate(self.sites)}

    def number_of(self, key: bytes) -> int | None:
        """Return the number of the site with this Ed25519 public key; None if there is none."""
        return self._numbers.get(key)

    # --- as text, in messages ---------------------------------------------------------------

    def to_text(self) -> str:
        """Canonical JSON: sorted keys, no spaces, ASCII."""
        fields = {
            "class-digest": self.class_digest,
            "committee": self.committee.members,
            "name": self.name,
            "sites": [{"key": site.key.hex(), "name": site.name} for site in self.sites],
            "threshold": self.committee.threshold,
        }
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> Roster:
        """Return the roster that `to_text` wrote; InputError for any other text."""
        whole("the size of the message's roster in bytes", len(text), 0, MOST_BYTES)
        with damaged("the message contains no roster in canonical form", RecursionError):
            fields = json.loads(text)
            sites = tuple(Member(s["name"], bytes.fromhex(s["key"])) for s in fields["sites"])
            committee = Committee(tuple(fields["committee"]), fields["threshold"])
            roster = cls(fields["name"], sites, committee, fields["class-digest"])
        same("roster of the message, in canonical form,", text, roster.to_text())
        return roster

    # --- as a file, for people --------------------------------------------------------------

    @classmethod
    def read(cls, path: Path) -> Roster:
        """Read the roster of a `federation.toml`.

        Raises
        ------
        InputError
            One line that names the file and what is wrong with it.
        """
        return read_as(path, MOST_BYTES, cls._of)

    @classmethod
    def _of(cls, table: Mapping[str, Any]) -> Roster:
        file = record_of(_File, table, "the federation")
        sites = tuple(
            Member(one.name, check_key(f"key of site {one.name!r:.80}", one.key))
            for one in file.site
        )
        numbers = {site.name: number for number, site in enumerate(sites)}
        for name in {*file.committee} - {*numbers}:
            one_of("site of the committee", name, numbers, "the file")
        committee = Committee(tuple(numbers[name] for name in file.committee), file.threshold)
        return cls(file.name, sites, committee, file.class_digest)

    def to_toml(self) -> str:
        """Return the text of a `federation.toml` that `read` takes."""
        table: dict[str, Any] = {
            "name": self.name,
            "threshold": self.committee.threshold,
            "committee": [self.sites[member].name for member in self.committee.members],
        }
        if self.class_digest:
            table["class-digest"] = self.class_digest
        table["site"] = [{"name": site.name, "key": site.key.hex()} for site in self.sites]
        return tomli_w.dumps(table)


def check_name(what: str, name: Any) -> str:
    """`name` if people can read it, and no two look alike by their encoding; or InputError."""
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= _LONGEST_NAME
        or not name.isprintable()  # no control characters, none that turn the direction of text
        or name != unicodedata.normalize("NFC", name).strip()
    ):
        raise InputError(
            f"{what} must be printable text of at most {_LONGEST_NAME} characters, without spaces "
            f"at its ends, got {str(name)[:80]!r}"
        )
    return name


def check_digest(what: str, text: Any) -> str:
    """`text` if it is a SHA-256 in lower-case hexadecimal digits, or InputError."""
    return _hex(what, text, keys.DIGEST_BYTES, "0-9a-f").hex()


def in_words(digest: str) -> str:
    """First 132 bits of a digest as 12 words of a list of 2,048, as people read them aloud."""
    words = Path(__file__).with_name("words.txt").read_text("ascii").split()
    bits = int(digest[:33], 16)
    return " ".join(words[bits >> at & 2047] for at in range(121, -1, -11))


def check_key(what: str, text: Any) -> bytes:
    """Return the 32 bytes of an Ed25519 public key in hexadecimal digits, or raise InputError."""
    return _hex(what, text, keys.KEY_BYTES)


@dataclass(frozen=True)
class _Site:
    name: str
    key: str


@dataclass(frozen=True)
class _File:
    """What a `federation.toml` may hold."""

    name: str
    site: tuple[_Site, ...]
    threshold: int
    committee: tuple[str, ...]
    class_digest: str = ""


def _hex(what: str, text: Any, length: int, digits: str = "0-9a-fA-F") -> bytes:
    words = f"{2 * length} hexadecimal digits"
    return bytes.fromhex(like(what, text, f"[{digits}]{{{2 * length}}}", words))
