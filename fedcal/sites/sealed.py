"""Files that sites send back, `SITE.join`, and the coordinator's `STUDY.sealed` made of them.

**Formal guarantee.** A `.join` holds two public keys, names and a digest: nothing in it comes from
a row. It is signed by the site's own key, so nobody can enrol a key that is not theirs. The digest
of a sealed study, which sites compare by telephone, is of its terms, all that is asked with its
plan, sites, their keys, the committee, the coordinator's key, the server and its authority, and the
keys of connections. What the coordinator only signs (the question's words, the numbers that sites
stated, the date) changes neither what is asked, nor who opens sums, nor by whom a report must be
signed. The coordinator
writes all texts and so could look for two with one digest: people compare 132 bits of it.
"""

import datetime
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from fedcal.core.checks import InputError, damaged, different, integer, like, one_of, same
from fedcal.privacy.agreement import Terms
from fedcal.privacy.query import QUERIES
from fedcal.results.page import read_json
from fedcal.run.engines.tls import plain_key
from fedcal.secure_aggregation import keys
from fedcal.secure_aggregation.keys import SigningKey
from fedcal.secure_aggregation.roster import Roster, check_digest
from fedcal.sites.study_file import Study
from fedcal.storage.atomic import must_exist, write_file
from fedcal.storage.toml_files import check_keys

MOST_BYTES = 1 << 22
SCHEMA = 1
JOIN, SEALED = ".join", ".sealed"
_CONNECTION = re.compile(r"ecdsa-sha2-nistp(256|384|521) [A-Za-z0-9+/]+={0,2}( [\x20-\x7e]{0,99})?")
Fields = Mapping[str, Any]
_JOIN, _SEALED, _DIGEST = "study-join", "study-sealed", "study-digest"


@dataclass(frozen=True)
class Join:
    """Answer of a site to its kit.

    `study` is its name, and `terms` the digest of its terms in the kit; `site` is the site's name,
    `key` its Ed25519 public key, 32 bytes (who it is in sums), `connection` its public key for the
    server, one line of OpenSSH.
    """

    study: str
    terms: str
    site: str
    key: bytes
    connection: str

    def to_text(self, signer: SigningKey) -> str:
        """Return the file's text, signed by the site's own key."""
        return signed_text({**vars(self), "key": self.key.hex(), "schema": SCHEMA}, _JOIN, signer)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the join of a file; InputError if it is not one, or not signed by its key."""
        fields = read_fields(path)
        with damaged(f"{path} is no .join file"):
            key = _key("key", fields["key"])
            names = (*cls.__dataclass_fields__, "classes")  # which earlier versions wrote
            check_signed(path, fields, _JOIN, key, names)
            check_digest("terms", fields["terms"])
            _connection(str(path), str(fields["connection"]))
            known: Any = {name: str(fields[name]) for name in cls.__dataclass_fields__}
            return cls(**known | {"key": key})


@dataclass(frozen=True)
class Sealed:
    """Study whose sites are enrolled.

    `roster` has them by their keys; `connections` are site -> its public key for the server, one
    line of OpenSSH. `asked` is what all releases ask, with its plan: `Terms.check` tells whether it
    holds. By `authority`, PEM, the server's certificate is verified. `coordinator` is the Ed25519
    public key of who sealed it, 32 bytes, and `when` that was: ISO 8601, UTC. A site accepts no
    lower `revision` than it has accepted. `one_machine`: the coordinator's machine runs the server.
    """

    study: Study
    roster: Roster
    connections: Mapping[str, str]
    asked: Terms
    authority: str
    coordinator: bytes
    when: str
    revision: int = 1
    one_machine: bool = False

    def __post_init__(self) -> None:
        sites: dict[bytes, str] = {}
        for site, line in self.connections.items():
            if (first := sites.setdefault(_connection(site, line), site)) != site:
                raise InputError(f"{first} and {site} have one connection key: each makes its own")

    @classmethod
    def of(cls, study: Study, joins: Iterable[Join], authority: str, signer: SigningKey) -> Self:
        """Enrol sites, in revision 1, by a coordinator apart from the server.

        Raises InputError if a site is missing, is there twice, is none of the study's, has joined
        other terms, or has the connection of another one.
        """
        joins = list(joins)
        different(".join files of one site", (one.site for one in joins))
        joins_by_site: dict[str, Join] = {}
        for one in joins:
            one_of(f"site of {study.study}", one.site, study.sites)
            same(f"terms that {one.site} joined (else send it a new kit)", one.terms, study.digest)
            joins_by_site[one.site] = one
        roster = study.roster({name: one.key for name, one in joins_by_site.items()})
        connections = {name: joins_by_site[name].connection for name in study.sites}
        when = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
        asked = study.asked(roster)
        return cls(study, roster, connections, asked, authority, signer.public, when)

    def to_text(self, signer: SigningKey) -> str:
        """Return the file's text, signed."""
        return signed_text(self._fields, _SEALED, signer)

    @cached_property
    def _fields(self) -> dict[str, Any]:
        return {
            "asked": self.asked.to_plain(),
            "authority": self.authority,
            "connections": dict(self.connections),
            "coordinator": self.coordinator.hex(),
            "one_machine": self.one_machine,
            "revision": self.revision,
            "roster": self.roster.to_text(),
            "schema": SCHEMA,
            "study": self.study.to_toml(),
            "when": self.when,
        }

    @property
    def asked_in_words(self) -> list[str]:
        """Return the numbers that a release asks of a site, a line for each of its questions."""
        lines = []
        for one in self.asked.questions:
            what = (QUERIES[one.kind].__doc__ or one.kind).split("\n")[0].rstrip(".")
            numbers = "" if one.cells == math.inf else f"length {one.cells:,g}, "
            first, last = one.rounds
            rounds = f"round {first}" if first == last else f"rounds {first} to {last}"
            lines.append(f"{what.removeprefix('Question for ')} ({numbers}{rounds})")
        return lines

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all that sites agree on, 64 hexadecimal digits; people compare it in words."""
        agreed = {k: v for k, v in self._fields.items() if k not in ("revision", "when")}
        agreed |= {"study": self.study.terms, "server": self.study.server}
        return keys.digest(_DIGEST, signing_text(agreed)).hex()

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the sealed study of a file.

        Raises InputError if it is none, is not signed by the coordinator it names, or its roster is
        not of its terms.
        """
        fields = read_fields(path)
        with damaged(f"{path} is not a sealed study"):
            coordinator = _key("coordinator", fields["coordinator"])
            check_signed(path, fields, _SEALED, coordinator, cls.__dataclass_fields__)
            study = Study.from_text(str(fields["study"]))
            roster = Roster.from_text(str(fields["roster"]))
            connections = {str(k): str(v) for k, v in fields["connections"].items()}
            asked = Terms.from_plain(fields["asked"])
            authority, when = str(fields["authority"]), str(fields["when"])
            with damaged(f"{path} says no date in 'when'"):
                datetime.datetime.fromisoformat(when)
            revision = integer(f"revision of {path}", fields["revision"], 1, 2**53)
            facts = (authority, coordinator, when, revision, fields["one_machine"] is True)
            sealed = cls(study, roster, connections, asked, *facts)
        own = study.roster({site.name: site.key for site in roster.sites})
        same(f"roster of {path}", roster.to_text(), own.to_text())
        same(f"connections of {path}", sorted(connections), sorted(study.sites))
        return sealed


def _connection(where: str, line: str) -> bytes:
    """Return a connection's key, without its comment; InputError if it is not one, in one line."""
    is_line = _CONNECTION.fullmatch(line) is not None
    return plain_key(f"the connection of {where}", line.encode() if is_line else b"")


def signing_text(fields: Fields) -> bytes:
    """Canonical bytes of what is signed."""
    plain = {k: v for k, v in fields.items() if k != "signature"}
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()


def signed_text(fields: Fields, purpose: str, signer: SigningKey) -> str:
    """Fields and their signature as JSON."""
    made = signer.sign(purpose, keys.digest(purpose, signing_text(fields)))
    return json.dumps({**fields, "signature": made.hex()}, indent=1, sort_keys=True) + "\n"


def check_signed(path: Path, fields: Fields, purpose: str, key: bytes, of: Iterable[str]) -> None:
    """InputError if the fields of a file have other names, or are not signed by a key."""
    check_keys(str(path), fields, {*of, "schema", "signature"})
    made, text = fields.get("signature"), keys.digest(purpose, signing_text(fields))
    try:
        signed = keys.verified(key, purpose, text, bytes.fromhex(str(made)))
    except ValueError:
        signed = False
    if not signed:
        raise InputError(f"{path} was changed after it was signed, or is signed by another key")


def read_fields(path: Path) -> dict[str, Any]:
    """Return the fields of a file; InputError if they are not of this version."""
    return dict(read_json(path, "study's file", MOST_BYTES))


SIGNATURE = "signature.json"
_PURPOSE = "study-quarter"


def write_signature(folder: Path, signer: SigningKey) -> None:
    """Sign all files of a quarter in a folder."""
    fields = {"schema": 1, "files": _hashes(folder)}
    write_file(folder / SIGNATURE, signed_text(fields, _PURPOSE, signer))


def check_signature(folder: Path, coordinator: bytes) -> None:
    """InputError unless this key has signed all files of a quarter in a folder as they are."""
    path, now = folder / SIGNATURE, _hashes(folder)
    must_exist(path, f"not signed. fedcal study verify {folder} --key coordinator.pem signs it")
    fields = read_fields(path)
    check_signed(path, fields, _PURPOSE, coordinator, ["files"])
    for name in sorted({*now, *fields["files"]}):
        same(f"signed hash of {folder / name}", now.get(name), fields["files"].get(name))


def _hashes(folder: Path) -> dict[str, str]:
    files = {path.name: path for path in folder.iterdir() if path.name != SIGNATURE}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}


def _key(what: str, text: Any) -> bytes:
    """Return the 32 bytes of an Ed25519 public key in hexadecimal digits, or raise InputError."""
    return bytes.fromhex(like(what, text, "[0-9a-fA-F]{64}", "64 hexadecimal digits"))
