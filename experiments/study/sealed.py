"""What sites send back, `SITE.join`, and what the coordinator makes of it, `STUDY.sealed`.

**Formal guarantee.** A `.join` holds two public keys, names and digests: nothing in it comes from
a row. It is signed by the site's own key, so nobody can enrol a key that is not theirs. The roster
of a sealed study has the digest of the study's terms in its name; so its own digest, which sites
compare by telephone and pin, is of the terms, the sites, their keys and the committee. What is
only signed by the coordinator (the server's address, the keys of connections) lets somebody in or
keeps a site out; it changes neither what is asked nor who opens sums.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from fedcal.core.errors import InputError
from fedcal.experiments.study.study_file import Study
from fedcal.secure_aggregation import keys
from fedcal.secure_aggregation.keys import SigningKey
from fedcal.secure_aggregation.roster import Roster, check_digest, check_key
from fedcal.storage.atomic import whole_file

MOST_BYTES = 1 << 22
SCHEMA = 1
JOIN, SEALED = ".join", ".sealed"
_CONNECTION = re.compile(r"ecdsa-sha2-nistp(256|384|521) [A-Za-z0-9+/]+={0,2}( [\x20-\x7e]{0,99})?")
_JOIN, _SEALED = "study-join", "study-sealed"


@dataclass(frozen=True)
class Join:
    """Answer of a site to its kit.

    `study` is its name, and `terms` the digest of its terms in the kit; `site` is the site's name,
    `key` its Ed25519 public key, 32 bytes (who it is in sums), `connection` its public key for the
    server, one line of OpenSSH; `classes` is the digest of the names of its classes.
    """

    study: str
    terms: str
    site: str
    key: bytes
    connection: str
    classes: str

    def to_text(self, signer: SigningKey) -> str:
        """Return the file's text, signed by the site's own key."""
        fields = {**vars(self), "key": self.key.hex(), "schema": SCHEMA}
        return signed_text(fields, _JOIN, signer)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the join of a file; InputError if it is not one, or not signed by its key."""
        fields = read_fields(path)
        try:
            key = check_key("key", fields["key"])
            check_signed(path, fields, _JOIN, key)
            for name in ("terms", "classes"):
                check_digest(name, fields[name])
            if not _CONNECTION.fullmatch(str(fields["connection"])):
                raise InputError(f"{path}: its key for the server is none of OpenSSH's")
            texts = {k: str(fields[k]) for k in ("study", "terms", "site", "connection", "classes")}
            return cls(key=key, **texts)
        except KeyError as e:
            raise InputError(f"{path} is no .join file: {e.args[0]!r} is missing") from None


@dataclass(frozen=True)
class Sealed:
    """Study whose sites are enrolled.

    `roster` has them by their keys; `connections` are site -> its public key for the server, one
    line of OpenSSH. By `authority`, PEM, the server's certificate is verified. `coordinator` is the
    Ed25519 public key of who sealed it, 32 bytes, and `when` that was: ISO 8601, UTC. A site
    accepts nothing older than what it has accepted.
    """

    study: Study
    roster: Roster
    connections: Mapping[str, str]
    authority: str
    coordinator: bytes
    when: str

    @classmethod
    def of(cls, study: Study, joins: Iterable[Join], authority: str, signer: SigningKey) -> Self:
        """Enrol sites.

        Raises InputError if a site is missing, is there twice, is none of the study's, or has
        joined other terms or with other classes.
        """
        joins_by_site: dict[str, Join] = {}
        for one in joins:
            if one.site not in study.sites:
                raise InputError(f"{one.site!r} is none of the sites of {study.study}")
            if one.site in joins_by_site:
                raise InputError(f"there are two .join files of {one.site}")
            if one.terms != study.digest:
                raise InputError(
                    f"{one.site} joined other terms ({one.terms[:12]}) than those of the study's "
                    f"file now ({study.digest[:12]}): send it a new kit"
                )
            if one.classes != study.class_digest:
                raise InputError(f"{one.site} has other classes, or in another order")
            joins_by_site[one.site] = one
        roster = study.roster({name: one.key for name, one in joins_by_site.items()})
        connections = {name: joins_by_site[name].connection for name in study.sites}
        when = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
        return cls(study, roster, connections, authority, signer.public, when)

    def to_text(self, signer: SigningKey) -> str:
        """Return the file's text, signed."""
        return signed_text(self._fields, _SEALED, signer)

    @cached_property
    def _fields(self) -> dict[str, Any]:
        return {
            "authority": self.authority,
            "connections": dict(self.connections),
            "coordinator": self.coordinator.hex(),
            "roster": self.roster.to_text(),
            "schema": SCHEMA,
            "study": self.study.to_toml(),
            "when": self.when,
        }

    @property
    def digest(self) -> str:
        """Digest of the roster, and so of the terms: people compare it by telephone."""
        return self.roster.digest

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the sealed study of a file.

        Raises InputError if it is none, is not signed by the coordinator it names, or its roster is
        not of its terms.
        """
        fields = read_fields(path)
        try:
            coordinator = check_key("coordinator", fields["coordinator"])
            check_signed(path, fields, _SEALED, coordinator)
            study = Study.from_text(str(fields["study"]))
            roster = Roster.from_text(str(fields["roster"]))
            connections = {str(k): str(v) for k, v in fields["connections"].items()}
            sealed = cls(
                study,
                roster,
                connections,
                str(fields["authority"]),
                coordinator,
                str(fields["when"]),
            )
        except KeyError as e:
            raise InputError(f"{path} is not a sealed study: {e.args[0]!r} is missing") from None
        except AttributeError:
            raise InputError(f"{path} is not a sealed study: connections must be a table") from None
        if roster != study.roster({site.name: site.key for site in roster.sites}):
            raise InputError(f"{path}: its roster is not that of its terms")
        if not all(map(_CONNECTION.fullmatch, connections.values())):
            raise InputError(f"{path}: a site's key for the server is none of OpenSSH's")
        if set(connections) != set(study.sites):
            raise InputError(f"{path}: a site has no key for its connection")
        return sealed


def signing_text(fields: Mapping[str, Any]) -> bytes:
    """Canonical bytes of what is signed."""
    plain = {k: v for k, v in fields.items() if k != "signature"}
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()


def signed_text(fields: Mapping[str, Any], purpose: str, signer: SigningKey) -> str:
    """Fields and their signature as JSON."""
    made = signer.sign(purpose, keys.digest(purpose, signing_text(fields)))
    return json.dumps({**fields, "signature": made.hex()}, indent=1, sort_keys=True) + "\n"


def check_signed(path: Path, fields: Mapping[str, Any], purpose: str, key: bytes) -> None:
    """InputError if the fields of a file are not signed by a key."""
    made, text = fields.get("signature"), keys.digest(purpose, signing_text(fields))
    try:
        signed = keys.verified(key, purpose, text, bytes.fromhex(str(made)))
    except ValueError:
        signed = False
    if not signed:
        raise InputError(f"{path} was changed after it was signed, or is signed by another key")


def read_fields(path: Path) -> dict[str, Any]:
    """Return the fields of a file; InputError if they are not of this version."""
    try:
        if not path.is_file():
            raise InputError(f"{path} is not there, or no file")
        if path.stat().st_size > MOST_BYTES:
            raise InputError(f"{path} is larger than {MOST_BYTES} bytes")
        fields = json.loads(path.read_text("utf-8"))
    except InputError:
        raise
    except OSError as e:
        raise InputError(f"{path} cannot be read: {e.strerror}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path} is not a file of a study: it is not JSON") from None
    if not isinstance(fields, dict) or fields.get("schema") != SCHEMA:
        raise InputError(f"{path} is not a file of a study of this version")
    return fields


def write_text(path: Path, text: str) -> None:
    """Write a file, all of it or none."""
    with whole_file(path) as file:
        file.write(text.encode())
