"""The hospital's side of a study before it runs: its kit, its rows, its keys, what it accepts."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from fedcal.core.errors import InputError
from fedcal.core.pages import number
from fedcal.core.printable import printable
from fedcal.experiments.deploy.certificates import make_site_key
from fedcal.experiments.deploy.fleet import public_key
from fedcal.experiments.deploy.rows import SiteRows, of_scores, read_rows
from fedcal.experiments.deploy.site import check_federation
from fedcal.experiments.runs.files import to_json, write_folder
from fedcal.experiments.study.kits import (
    AUTHORITY,
    KIT,
    SCHEMA,
    STUDY,
    UNIT,
    kit_files,
    policy_text,
    unit_text,
    write_files,
)
from fedcal.experiments.study.sealed import JOIN, Join, Sealed, write_text
from fedcal.experiments.study.study_file import Study, named
from fedcal.secure_aggregation.keys import make_key, read_key
from fedcal.secure_aggregation.roster import in_groups
from fedcal.units import Subject

FEW, FEW_OF_A_CLASS = 100, 10
"""Fewer of those protected, and fewer rows of a class, are warned of."""

SEALED_COPY, ROWS = "study.sealed", "rows.json"


@dataclass(frozen=True)
class Kit:
    """A site's folder: what the coordinator sent, and what the site has made since.

    Attributes
    ----------
    folder
        where it is
    site
        its name
    one_machine
        whether the coordinator's machine runs the server
    study
        as the kit has it, which is not what the site has accepted
    """

    folder: Path
    site: str
    one_machine: bool
    study: Study

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The kit in a folder; InputError if there is none."""
        try:
            told = json.loads((folder / KIT).read_text("utf-8"))
            if told["schema"] != SCHEMA:
                raise InputError(f"{folder} is a kit of another version of fedcal")
            site, is_one = str(told["site"]), told["one_machine"] is True
        except (OSError, ValueError, KeyError, TypeError):
            raise InputError(
                f"{folder} is no kit of a study: there is no {KIT} in it that can be read"
            ) from None
        study = Study.read(folder / STUDY)
        if site not in study.sites:
            raise InputError(f"{folder}: {site!r} is none of the sites of {study.study}")
        return cls(folder, site, is_one, study)

    @property
    def keys(self) -> Path:
        """Folder of its private keys."""
        return self.folder / "keys"

    @property
    def signing(self) -> Path:
        """The key that it signs by in sums."""
        return self.keys / "signing.pem"

    @property
    def connection(self) -> Path:
        """The key by which the server lets it in."""
        return self.keys / "connection.key"

    @property
    def state(self) -> Path:
        """The site's own folder, as `fedcal site` has it."""
        return self.folder / "state"

    @cached_property
    def accepted(self) -> Sealed | None:
        """The study as this site has accepted it; None = it has not."""
        path = self.folder / SEALED_COPY
        return Sealed.read(path) if path.exists() else None

    @property
    def data(self) -> str:
        """Its rows, a file or a function; InputError if it has not joined."""
        try:
            return str(json.loads((self.folder / ROWS).read_text("utf-8"))["data"])
        except (OSError, ValueError, KeyError, TypeError):
            raise InputError(
                f"{self.site} has not joined: fedcal site join {self.folder} ROWS"
            ) from None

    @property
    def own_keys(self) -> tuple[bytes, str]:
        """Its public keys: in sums, and for the server; InputError if it has not joined."""
        if not self.signing.exists():
            raise InputError(f"{self.site} has not joined: fedcal site join {self.folder} ROWS")
        return read_key(self.signing).public, public_key(self.connection)

    def is_enrolled(self, sealed: Sealed) -> bool:
        """Return whether a sealed study has this site by its own keys."""
        keys = {member.name: member.key for member in sealed.roster.sites}
        return self.own_keys == (keys[self.site], sealed.connections[self.site])

    def remember(self, data: str) -> None:
        """Write down where its rows are."""
        write_text(self.folder / ROWS, to_json({"data": data}))


def placed(data: str) -> str:
    """Rows as they are called from every folder: a file by its absolute path."""
    return os.path.abspath(data) if Path(data).exists() else data


def rows_of(study: Study, data: str) -> tuple[SiteRows, list[str]]:
    """The rows of a site as a study counts them, and warnings for its own screen.

    What the study does not ask for is not kept. Of two classes a column `score` is the probability
    of the positive one, and label 1 is that class.

    Raises InputError, one line, if they cannot be read or lack what the study counts.
    """
    rows = read_rows(data, study.classes, others=True)
    if study.unit == Subject.name and rows.subject is None:
        raise InputError(
            f"{data} has no column subject (or {study.protect}), and the study protects each "
            f"{study.protect}: rows of one {study.protect} need the same entry there, others others"
        )
    if study.groups and not set(rows.group_names or ()) & set(study.groups):
        raise InputError(
            f"{data} has no column group with {named(study.groups)}, which the study counts"
        )
    asked = {"subject": study.unit == Subject.name, "group": bool(study.groups)}
    there = {"subject": rows.subject, "group": rows.group, "other model": rows.other_scores}
    unused = [name for name, column in there.items() if column is not None and not asked.get(name)]
    warnings = []
    if rows.test_labels is not None:
        unused.append("split: rows of the part test are not counted")
    if unused:
        warnings.append(f"warning: the study does not ask for these: {', '.join(unused)}")
    if others := sorted(set(rows.group_names or ()) - set(study.groups)) if study.groups else ():
        warnings.append(f"warning: groups that are not counted apart: {', '.join(others)[:200]}")
    kept = replace(
        rows,
        test_scores=None,
        test_labels=None,
        other_scores=None,
        other_input=None,
        subject=rows.subject if asked["subject"] else None,
        group=rows.group if study.groups else None,
        group_names=rows.group_names if study.groups else None,
    )
    found = of_scores(kept, study.classes)
    # sites with logits and sites with probabilities are asked the same
    counts = found.counts.replace("subjects", study.plural)
    found = replace(found, counts=counts, shards=replace(found.shards, input="probs"))
    return found, [*warnings, *found.doubts(), *_few(study, found)]


def _few(study: Study, rows: SiteRows) -> list[str]:
    """Warnings of rows that are too few for the noise to leave much of them."""
    shards, found = rows.shards, []
    own = len(shards.labels if shards.subjects is None else np.unique(shards.subjects))
    if own < FEW:
        found.append(
            f"warning: {own} {study.plural}: below {FEW} the noise hides all but the largest faults"
        )
    for name, rows_of_it in zip(rows.names, np.bincount(shards.labels, minlength=2), strict=False):
        if 0 < rows_of_it < FEW_OF_A_CLASS:
            found.append(f"warning: only {number(int(rows_of_it))} rows of {name}")
    return found


def write_home(kit: Kit, rows: SiteRows) -> None:
    """Write the site's own page, with its exact numbers, for its own user alone."""
    from fedcal.experiments.deploy.at_home import as_it_is

    advice = (
        "What the other sites show can make a calibrator for this one: once there is a release, "
        f"fedcal site recalibrate --release release.npz {rows.name} --site {kit.site} judges one "
        "by these rows, here, and nothing is sent."
    )
    title = f": {kit.site}, for its own eyes"
    as_it_is(rows.shards, rows.name, title, advice).save(kit.folder / "home")


def join(folder: Path, data: str, *, new_keys: bool = False) -> tuple[SiteRows, list[str], Path]:
    """Check a site's rows, make its keys and its `.join` file in the working folder.

    Parameters
    ----------
    folder
        its kit
    data
        its rows, a file or module:function
    new_keys
        make others in the place of those that were lost, or that somebody else may have

    Returns
    -------
    tuple[SiteRows, list[str], Path]
        the rows, warnings about them for its own screen, and the file to send back

    Raises
    ------
    InputError
        Rows, kit or keys are wrong, or runs of the old keys are unfinished; nothing is written.
    """
    kit, data = Kit.read(folder), placed(data)
    rows, warnings = rows_of(kit.study, data)
    if new_keys:
        check_federation(kit.state, None)
    try:
        kit.keys.mkdir(mode=0o700, exist_ok=True)
        if new_keys:  # their records stay: the new ones take over what was spent
            for old in (kit.signing, kit.connection, kit.connection.with_suffix(".pub")):
                old.unlink(missing_ok=True)
    except OSError as e:
        raise InputError(f"cannot write {e.filename}: {e.strerror}") from None
    if kit.signing.exists():  # a kit has none: they are ours, or somebody put them there
        warnings.append(
            f"the keys in {kit.keys} were there and are kept. If this site has not joined before, "
            "somebody else made them: join again with --new-keys"
        )
    else:
        make_key(kit.signing)
    if not kit.connection.exists():
        make_site_key(kit.keys, kit.connection.stem, kit.site)
    kit.remember(data)
    write_home(kit, rows)
    # what a kit has that could be run is not the coordinator's any more
    ours = kit_files(kit.study, kit.site, one_machine=kit.one_machine) | {UNIT: _own_unit(kit)}
    write_folder(kit.folder, lambda draft: write_files(draft, ours))
    study, (key, connection) = kit.study, kit.own_keys
    made = Join(study.study, study.digest, kit.site, key, connection, study.class_digest)
    out = Path(f"{kit.site}{JOIN}")
    write_text(out, made.to_text(read_key(kit.signing)))
    return rows, warnings, out


def _own_unit(kit: Kit) -> str:
    """The service on this machine: by this interpreter, for this user, from this folder on."""
    paths = (sys.executable, str(kit.folder.absolute()), str(Path.cwd()))
    python, folder, beside = (path.replace("%", "%%") for path in paths)
    command = f'"{python}" -m fedcal site start "{folder}"'
    return unit_text(kit.site, str(os.getuid()), folder, beside, command)


@dataclass(frozen=True)
class Offer:
    """A sealed study that is one of this site's, before it is accepted."""

    kit: Kit
    sealed: Sealed
    text: str

    @classmethod
    def read(cls, folder: Path, path: Path) -> Self:
        """Check a sealed study against a site's kit and keys.

        Raises InputError if it is another study, has another key for this site, or another
        authority.
        """
        kit, sealed = Kit.read(folder), Sealed.read(path)
        study, site = sealed.study, kit.site
        if study.study != kit.study.study or site not in study.sites:
            raise InputError(f"{path}: {site} is none of the sites of the study {study.study}")
        if not kit.is_enrolled(sealed):
            raise InputError(
                f"{path} has another key for {site} than this site's own: nothing is accepted. Ask "
                f"the coordinator whose key it is, and send {site}{JOIN} again"
            )
        if sealed.authority != (folder / AUTHORITY).read_text("ascii", "replace"):
            raise InputError(
                f"{path} has another authority for the server than the kit's {AUTHORITY}: nothing "
                "is accepted. Ask the coordinator for a new kit"
            )
        return cls(kit, sealed, path.read_text("utf-8"))

    def lines(self) -> list[str]:
        """One screen: what will be asked, what it may cost, who can do what, what has changed."""
        study, committee = self.sealed.study, self.sealed.roster.committee
        others = [name for name in study.sites if name != self.kit.site]
        outcome = "outcome and group" if study.groups else "outcome"
        lines = [
            f"{study.study}: {study.question}".rstrip(": "),
            f"  model    {study.model.name}, version {study.model.version}; classes "
            f"{', '.join(study.classes)}",
            f"  sites    {self.kit.site} (this one), {named(others)}",
            f"  asked    counts of predictions in {len(study.cuts) + 1} ranges by {outcome}, of "
            "this site apart; the server sees them under the noise of all",
            f"  often    {study.per_year} releases a year, until {study.until}",
            f"  budget   epsilon {study.epsilon_release:g} a release, {study.epsilon:g} a year, "
            f"{study.epsilon_total:g} in all, for each {study.protect}; all else is refused",
            f"  sums     of at least {study.quorum} sites; {committee.threshold} of "
            f"{len(committee.members)} open them, and {study.colluding} may work with the server",
            f"  server   {study.server}",
        ]
        if self.kit.one_machine:
            lines.append("  note     whoever runs the server chose who opens sums")
        before = self.kit.accepted
        since = "the kit" if before is None else "what was accepted"
        changed = changes(self.kit.study if before is None else before.study, study)
        if before is not None and before.roster.sites != self.sealed.roster.sites:
            changed.append("sites or keys of sites")
        if before is not None and before.coordinator != self.sealed.coordinator:
            changed.append("who has sealed it: another coordinator's key")
        lines += [f"  changed since {since}: {one}" for one in changed]
        # no text of a stranger's may look like the digest's line
        return [*map(printable, lines), "", "digest", in_groups(self.sealed.digest), ""]

    def accept(self) -> None:
        """Write what the site takes part in; InputError while runs of other terms are unfinished.

        Whatever the reason, either all of its files are written or none.
        """
        sealed = self.sealed

        def write(folder: Path) -> None:
            (folder / "federation.toml").write_text(sealed.roster.to_toml(), "utf-8")
            check_federation(self.kit.state, folder / "federation.toml")
            (folder / "site.toml").write_text(policy_text(sealed.study, sealed.digest), "utf-8")
            (folder / SEALED_COPY).write_text(self.text, "utf-8")

        write_folder(self.kit.folder, write)


def changes(old: Study, new: Study) -> list[str]:
    """What differs between the terms of two studies, "name: old -> new" each."""
    before, after = (_flat(json.loads(study.terms)) for study in (old, new))
    before["server"], after["server"] = old.server, new.server
    return [
        f"{name}: {_short(before.get(name))} -> {_short(after.get(name))}"
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    ]


def _flat(terms: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in terms.items() if k != "model"} | {
        f"model.{k}": v for k, v in terms["model"].items()
    }


def _short(value: Any) -> str:
    return f"{', '.join(map(str, value)) if isinstance(value, list) else value}"[:80]
