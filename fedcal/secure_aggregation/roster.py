"""The roster of a federation: its sites, their keys, and who opens sums. The server has no say.

A coordinator collects the sites' public keys and writes `federation.toml`; each site pins that
file by its digest, which people compare by telephone, or believes the coordinator's signature.
The coordinator is not the server: whoever chooses the keys of the committee could be the
committee.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import tomli_w

from fedcal.core.checks import listed, same, whole
from fedcal.core.classes import class_names, digest_of
from fedcal.core.errors import InputError
from fedcal.core.printable import look_of
from fedcal.secure_aggregation import keys
from fedcal.secure_aggregation.committee import EVERYBODY_UP_TO, Committee, default_threshold
from fedcal.storage.toml_files import check_keys, read_as

MOST_SITES = 100_000
MOST_BYTES = 1 << 25
"""Of a roster as text or as a file: 100,000 sites with names of 200 bytes."""

_LONGEST_NAME = 64
_SIGNED = "federation"
_KEYS = ("name", "threshold", "committee", "classes", "class-digest", "site", "signature")


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
class Signature:
    """A coordinator's word for a roster.

    Attributes
    ----------
    coordinator
        Ed25519 public key, 32 bytes
    signature
        of the roster's digest, 64 bytes
    """

    coordinator: bytes
    signature: bytes

    def __post_init__(self) -> None:
        same("length of the coordinator's key", len(self.coordinator), keys.KEY_BYTES)
        same("length of the coordinator's signature", len(self.signature), keys.SIGNATURE_BYTES)


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
        `fedcal.core.classes.digest_of` of the names of the classes; "" = not said
    signature
        a coordinator's, which has been verified; None = nobody has signed. Not in the digest

    Raises
    ------
    InputError
        If a name or key occurs twice, there are more than 100,000 sites, a member is no site, or
        the signature is of another roster.
    """

    name: str
    sites: tuple[Member, ...]
    committee: Committee
    class_digest: str = ""
    signature: Signature | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        check_name("the federation's name", self.name)
        whole("the number of sites", len(self.sites), 2, MOST_SITES)
        for what, column in (
            ("name", [look_of(site.name).casefold() for site in self.sites]),
            ("key", [site.key.hex() for site in self.sites]),
        ):
            twice = next((value for value, count in Counter(column).items() if count > 1), None)
            if twice is not None:
                raise InputError(f"two sites have the same {what} {twice!r}")
        if self.committee.members[-1] >= len(self.sites):
            raise InputError(
                f"site number {self.committee.members[-1]} is to be a member of the committee; "
                f"the {len(self.sites)} sites are numbered from 0"
            )
        if self.class_digest != "":
            check_digest("the class digest", self.class_digest)
        if (signed := self.signature) is not None and not keys.verified(
            signed.coordinator, _SIGNED, bytes.fromhex(self.digest), signed.signature
        ):
            raise InputError("the coordinator's signature is not one of this roster")

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical text, 64 hexadecimal digits."""
        return keys.digest("roster", self.to_text().encode("ascii")).hex()

    @property
    def coordinator(self) -> bytes | None:
        """Public key of the signer; None if it is not signed."""
        return None if self.signature is None else self.signature.coordinator

    @cached_property
    def _numbers(self) -> dict[bytes, int]:
        return {site.key: number for number, site in enumerate(self.sites)}

    def number_of(self, key: bytes) -> int | None:
        """Return the number of the site with this Ed25519 public key; None if there is none."""
        return self._numbers.get(key)

    def signed(self, key: keys.SigningKey) -> Roster:
        """Return the roster, signed by a coordinator."""
        made = key.sign(_SIGNED, bytes.fromhex(self.digest))
        return replace(self, signature=Signature(key.public, made))

    # --- as text, in messages ---------------------------------------------------------------

    def to_text(self) -> str:
        """Canonical JSON: sorted keys, no spaces, ASCII; without the signature."""
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
        refused = InputError("the message contains no roster in canonical form")
        if len(text) > MOST_BYTES:
            raise InputError(f"the roster of the message is larger than {MOST_BYTES} bytes")
        try:
            fields = json.loads(text)
            sites = tuple(Member(s["name"], bytes.fromhex(s["key"])) for s in fields["sites"])
            committee = Committee(tuple(fields["committee"]), fields["threshold"])
            roster = cls(fields["name"], sites, committee, fields["class-digest"])
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, RecursionError):
            raise refused from None
        if roster.to_text() != text:
            raise refused
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
        check_keys("the federation", table, _KEYS)
        listed = _given(table, "site", list, "a [[site]] with name and key for each site")
        sites = tuple(_member(place, site) for place, site in enumerate(listed, 1))
        numbers = {site.name: number for number, site in enumerate(sites)}
        if "committee" in table:
            named = _given(table, "committee", list, 'a list of names, as ["a", "b", "c"]')
            for name in named:
                if not isinstance(name, str) or name not in numbers:
                    raise InputError(f"the committee's {str(name)[:80]!r} is not one of the sites")
            members = tuple(numbers[name] for name in named)
        elif len(sites) <= EVERYBODY_UP_TO:
            members = tuple(range(len(sites)))
        else:
            raise InputError(
                f"'committee' is missing: of more than {EVERYBODY_UP_TO} sites, name the members "
                f'that open sums, as in committee = ["a", "b", "c"]'
            )
        if "threshold" not in table:
            raise InputError(
                "'threshold' is missing, the number of members that open a sum; usual for "
                f"{len(members)} members: {default_threshold(len(members))}"
            )
        signature = None
        if "signature" in table:
            signed = _given(table, "signature", dict, "a table")
            check_keys("[signature]", signed, ("coordinator", "signature"))
            signature = Signature(
                check_key("coordinator of [signature]", signed.get("coordinator")),
                _hex("signature of [signature]", signed.get("signature"), keys.SIGNATURE_BYTES),
            )
        return cls(
            _given(table, "name", str, "text"),
            sites,
            Committee(members, table["threshold"]),
            _class_digest(table),
            signature,
        )

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
        return tomli_w.dumps(table) + self.signature_toml()

    def signature_toml(self) -> str:
        """Return the last table of that file; "" if the roster is not signed."""
        if (signed := self.signature) is None:
            return ""
        pair = {"coordinator": signed.coordinator.hex(), "signature": signed.signature.hex()}
        return "\n" + tomli_w.dumps({"signature": pair})


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


def in_groups(digest: str) -> str:
    """64 digits in groups of four, as people read them to each other."""
    return " ".join(digest[at : at + 4] for at in range(0, len(digest), 4))


def in_words(digest: str) -> str:
    """First 132 bits of a digest as 12 words of a list of 2,048, as people read them aloud."""
    words = Path(__file__).with_name("words.txt").read_text("ascii").split()
    bits = int(digest[:33], 16)
    return " ".join(words[bits >> at & 2047] for at in range(121, -1, -11))


def check_key(what: str, text: Any) -> bytes:
    """Return the 32 bytes of an Ed25519 public key in hexadecimal digits, or raise InputError."""
    return _hex(what, text, keys.KEY_BYTES)


def _member(place: int, site: Any) -> Member:
    where = f"[[site]] number {place}"
    if not isinstance(site, dict):
        raise InputError(f"{where} must be a table with name and key")
    check_keys(where, site, ("name", "key"))
    name = check_name(f"name of {where}", site.get("name"))
    return Member(name, check_key(f"key of site {name!r}", site.get("key")))


def _class_digest(table: Mapping[str, Any]) -> str:
    if "classes" in table and "class-digest" in table:
        raise InputError("give 'classes' or 'class-digest', not both")
    if "class-digest" in table:
        return check_digest("'class-digest'", table["class-digest"])
    if "classes" not in table:
        return ""
    names = listed("'classes'", table["classes"], "names")
    return digest_of(class_names(names, len(names)))


def _given(table: Mapping[str, Any], key: str, kind: type, allowed: str) -> Any:
    if not isinstance(table.get(key), kind):
        there = f"got {str(table[key])[:80]!r}" if key in table else "it is missing"
        raise InputError(f"{key!r} must be {allowed}, {there}")
    return table[key]


def _hex(what: str, text: Any, length: int, digits: str = "0-9a-fA-F") -> bytes:
    if not isinstance(text, str) or not re.fullmatch(f"[{digits}]{{{2 * length}}}", text):
        raise InputError(f"{what} must be {2 * length} hexadecimal digits, got {str(text)[:80]!r}")
    return bytes.fromhex(text)
