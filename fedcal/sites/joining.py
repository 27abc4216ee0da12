"""The hospital's side of a study before it runs: its kit, its rows, its keys, what it accepts."""

import json
import os
import sys
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy.special import log_softmax

from fedcal import datasets
from fedcal.clients.site.store import RECORDS, records_in
from fedcal.core.checks import InputError, integer, located, needed, one_of, same, system_errors
from fedcal.core.shards import Shards
from fedcal.datasets.site_csv import AS_IT_IS, Reading
from fedcal.privacy.making import check_alike, check_terms, differences
from fedcal.results.files import to_json, write_folder
from fedcal.results.page import block_lines
from fedcal.results.terminal import must_agree
from fedcal.run.engines.tls import make_site_key, public_key
from fedcal.run.training_data import labelled_rows
from fedcal.secure_aggregation.keys import make_key, read_key
from fedcal.secure_aggregation.roster import in_words
from fedcal.sites import kits
from fedcal.sites.rows import SiteRows, compared, read_rows, shards_of
from fedcal.sites.sealed import JOIN, Join, Sealed, read_fields
from fedcal.sites.site import check_federation
from fedcal.sites.study_file import Study, named
from fedcal.storage.atomic import path_of, write_file
from fedcal.storage.npz import read_npz
from fedcal.training.networks import need_torch
from fedcal.units import Subject

FEW = 100
"""Fewer of those protected are warned of."""

MASS, LEAST = 0.1, 10
"""Share of rows with one and the same score, and how many, from which on it is warned of."""


@dataclass(frozen=True)
class Kit:
    """A site's folder: what the coordinator sent, and what the site has made since.

    `study` is as the kit has it, which is not what the site has accepted.
    """

    folder: Path
    site: str
    study: Study

    @classmethod
    def read(cls, folder: Path, *, joins: bool = False) -> Self:
        """Read the kit in a folder; InputError if there is none, or it brings keys or links.

        Whoever `joins` checks all of it.
        """
        if not joins:
            check_kit(folder)
        fields = read_fields(folder / kits.KIT)
        site, study = str(fields.get("site")), Study.read(folder / kits.STUDY)
        one_of(f"site of {study.study}", site, study.sites)
        return cls(folder, site, study)

    @property
    def own(self) -> Path:
        """Folder of this site's keys, and of what it has accepted."""
        return own_folder(self.study.study, self.site)

    @cached_property
    def accepted(self) -> Sealed | None:
        """The sealed study that this site has accepted; None = nothing yet."""
        path = self.own / ACCEPTED
        return Sealed.read(path) if path.exists() else None

    @property
    def marks(self) -> set[str]:
        """Identifiers of this folder, one of which stays if it is moved or mounted elsewhere."""
        return {str(self.folder.resolve()), str(self.folder.stat().st_ino)}

    @property
    def has_joined(self) -> bool:
        """True if this site has joined in this very folder, which was checked then."""
        mark = self.own / MADE_IN
        return mark.exists() and not self.marks.isdisjoint(mark.read_text("utf-8").splitlines())

    @property
    def is_used(self) -> bool:
        """True if a site has joined or runs in this folder, by whichever user."""
        return self.has_joined or (self.folder / STATE).exists()

    @property
    def own_keys(self) -> tuple[bytes, str]:
        """Public keys, for sums and for the server; InputError if it has not joined."""
        if not (self.has_joined and (self.own / SIGNING).exists()):
            raise InputError(f"{self.site} has not joined: fedcal site join {self.folder} ROWS")
        return read_key(self.own / SIGNING).public, public_key(self.own / CONNECTION)

    def is_enrolled(self, sealed: Sealed) -> bool:
        """Return whether a sealed study has this site by its own keys."""
        keys = {member.name: member.key for member in sealed.roster.sites}
        return self.own_keys == (keys[self.site], sealed.connections[self.site])

    @property
    def rows(self) -> tuple[str, Reading]:
        """Its file of rows, and how it is read."""
        fields = json.loads((self.own / ROWS).read_text("utf-8"))
        return fields["data"], Reading(**fields.get("reading", {}))

    def use(self, data: str, rows: SiteRows, reading: Reading) -> list[str]:
        """Remember where its rows are.

        Returns warnings of earlier rows, for its own screen.
        """
        state = self.folder / STATE
        with records_in(state) if (state / RECORDS).exists() else nullcontext() as records:
            answered = [] if records is None else [job.booked or 0.0 for job in records.booked()]
        doubts = compared(self.own, rows.shards, rows.ids, answered)
        write_file(self.own / ROWS, to_json({"data": data, "reading": asdict(reading)}))
        return doubts


def rows_of(
    study: Study, data: str, site: str = "", reading: Reading = AS_IT_IS
) -> tuple[SiteRows, list[str]]:
    """Return the rows of a site as a study counts them, and warnings for its own screen.

    Of two classes a column `score` is the probability of the positive one, and label 1 is that
    class. Where a model is trained the rows are features. Raises InputError, one line, if rows
    cannot be read or lack what the study counts.
    """
    if study.trains:
        return _features(study, data), []
    rows, notes = read_rows(data, study.classes, reading, study.missing)
    if study.unit == Subject.name:
        why = f"the study protects each {study.protect}, whose rows have the same entry there"
        needed(f"a column subject (or {study.protect}) of {data}", rows.subject, why)
    if strange := {*study.sites} & {*(rows.client_names or ())} - {site}:
        raise InputError(f"{data} has rows of {min(strange)} (column client), this is {site}")
    if study.groups:
        what = f"a column group of {data} with {named(study.groups)}"
        there = {*study.groups} & {*(rows.group_names or ())}
        needed(what, there or None, "the study counts these groups")
    # sites with logits and sites with probabilities are asked the same
    shards = shards_of(rows)
    if shards.input == "logits":
        shards = replace(shards, logits=log_softmax(shards.logits, axis=1), input="probs")
    site_rows = SiteRows(rows, shards, study.classes, notes, study.subjects)
    subjects = shards.subjects if study.unit == Subject.name else None
    own = len(shards.labels if subjects is None else np.unique(subjects))
    doubts = site_rows.doubts() + _point_masses(shards, study.model.points)
    if own < FEW:
        few = f"{study.number(own)}: below {FEW} the noise hides all but the largest faults"
        doubts.append(f"warning: {few}")
    return site_rows, doubts


def _features(study: Study, data: str) -> SiteRows:
    """Return the rows of a site that trains: an .npz file with features and labels."""
    need_torch()
    with located(data):
        arrays = read_npz(path_of(data))
        needed("features", arrays.get("features"), f"the study trains by {study.question.method}")
        found = labelled_rows(arrays | {"class_names": np.array(study.classes)})
    ids: Any = {"subject": found.subject, "name": path_of(data).name}
    none = np.zeros((len(found.y), found.classes))
    rows = datasets.from_arrays(logits=none, labels=found.y, classes=study.classes, **ids)
    return SiteRows(rows, replace(shards_of(rows), inputs=found.x), study.classes)


def _point_masses(shards: Shards, named: Sequence[float]) -> list[str]:
    """Return a warning if many rows have one and the same score that the study does not name."""
    scores = shards.probs[:, 1] if shards.classes == 2 else shards.probs.max(axis=1)
    values, counts = np.unique(scores, return_counts=True)
    first = np.argsort(-counts, kind="stable")[:50]
    first = first[~np.isclose(values[first, None], np.array(named), 0, 1e-6).any(axis=1)][:6]
    if not len(first) or counts[first[0]] < max(MASS * len(scores), LEAST):
        return []
    most = [f"{values[k]:.4g} ({100 * counts[k] / len(scores):.0f} %)" for k in first]
    return [
        f"warning: many rows have the same score, {', '.join(most)}: if these are the model's "
        "points, ask the coordinator to name them all in the study (points), from the model and "
        "not from rows"
    ]


def join(
    folder: Path, data: str, reading: Reading | None = None, *, new_keys: bool = False
) -> tuple[SiteRows, list[str], Path]:
    """Check a site's kit and rows, make its keys and its `.join` file in the working folder.

    A person is asked about rows whose scores run against their outcomes.

    Parameters
    ----------
    folder, data
        of the kit, and the site's rows
    reading
        how a file is read; None = as it was
    new_keys
        take the place of those that were lost, or that somebody else may have

    Returns
    -------
    tuple
        the rows, sentences for the site's own screen, and the file to send back

    Raises
    ------
    InputError
        Rows, kit or keys are wrong, nobody says yes, or runs of the old keys are unfinished.
    """
    from fedcal.sites.at_home import Rows

    kit = Kit.read(folder, joins=True)
    own, paths = kit.own, {"folder": folder.resolve(), "beside": Path.cwd(), "own": kit.own}
    # what a kit has that could be run is not the coordinator's
    files = kits.kit_files(kit.study, kit.site)
    files |= kits.service_files(kit.site, python=sys.executable, **paths)
    signing, connection = own / SIGNING, own / CONNECTION
    made = {STATE, HOME, ACCEPTED, ROWS, f"{kit.site}{JOIN}"}
    check_kit(folder, {*files, kits.AUTHORITY} | (made if kit.has_joined else set()))
    data = os.path.abspath(data) if Path(data).exists() else data
    if reading is None:
        reading = kit.rows[1] if kit.has_joined and (own / ROWS).exists() else AS_IT_IS
    rows, warnings = rows_of(kit.study, data, kit.site, reading)
    if reversed_order := Rows(rows.shards).against_outcomes:
        question = f"{reversed_order} This site's results would be wrong. Go on?"
        must_agree(question, f"{folder} stays as it is")
    with system_errors(f"cannot write {own}"):
        for place in (*reversed(own.parents[:3]), own):
            place.mkdir(0o700, parents=True, exist_ok=True)
        own.chmod(0o700)
        has_keys = signing.exists() and connection.exists()
        if kit.has_joined and not (has_keys or new_keys):
            raise InputError(f"{own} has lost a key of this site: --new-keys makes others")
        if new_keys or not has_keys:
            check_federation(folder / STATE, None)
            # their records stay: new keys take over what was spent
            for old in (signing, connection, connection.with_suffix(".pub")):
                old.unlink(missing_ok=True)
            make_site_key(own, connection.stem, kit.site)
            make_key(signing)
    write_file(own / MADE_IN, "\n".join(kit.marks))
    warnings += kit.use(data, rows, reading)
    write_folder(folder, partial(kits.write_files, files=files))
    study, out = kit.study, Path(f"{kit.site}{JOIN}")
    joined = Join(study.study, study.digest, kit.site, *kit.own_keys)
    write_file(out, joined.to_text(read_key(signing)))
    return rows, [*rows.notes, *warnings], out


@dataclass(frozen=True)
class Offer:
    """A sealed study that is one of this site's, before it is accepted; `text` is its file's."""

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
        same(f"study of {path}", study.study, kit.study.study)
        one_of(f"site of {path}", site, study.sites)
        study.must_go_on()
        before = kit.accepted or sealed
        least = before.revision + (sealed.digest != before.digest)
        integer(f"revision of {path} (ask the coordinator for the latest)", sealed.revision, least)
        if not kit.is_enrolled(sealed):
            raise InputError(
                f"{path} has another key for {site} than this site's own: not accepted. Ask the "
                f"coordinator whose key it is, and send {site}{JOIN} again"
            )
        check_terms(sealed.asked)
        asked, planned = (one.to_plain() for one in (sealed.asked, study.asked(sealed.roster)))
        for name in ("job", *planned):
            check_alike(f"{name} that is asked, by the study itself,", asked[name], planned[name])
        study.policy(sealed.roster.digest).check(sealed.asked, sealed.roster, study.since)
        own = (folder / kits.AUTHORITY).read_text("ascii", "replace")
        same(f"server's authority in {path} (else ask for a new kit)", sealed.authority, own)
        return cls(kit, sealed, path.read_text("utf-8"))

    def lines(self) -> list[str]:
        """One screen: what will be asked, what it may cost, who can do what, what has changed."""
        study, sealed, before = self.sealed.study, self.sealed, self.kit.accepted
        old = _terms(self.kit.study if before is None else before.study)
        found = differences("", old, _terms(study), 0.0)
        changed = [f"{name}: {was} -> {now}"[:160] for name, was, now in found]
        if before is not None and before.roster.sites != sealed.roster.sites:
            changed.append("sites or keys of sites")
        if before is not None and before.coordinator != sealed.coordinator:
            changed.append("who has sealed it: another coordinator's key")
        lines = block_lines(  # no text of a stranger's may look like the digest's line
            "study",
            "offer",
            study=study,
            sealed=sealed,
            site=self.kit.site,
            others=named([name for name in study.sites if name != self.kit.site]),
            since="the kit" if before is None else "what was accepted",
            changed=changed,
            words=in_words(sealed.digest),
        )
        return [*lines, ""]

    def accept(self) -> None:
        """Keep what the site takes part in, with a copy for people in its kit.

        Raises InputError while runs of other terms are unfinished.
        """
        check_federation(self.kit.folder / STATE, self.sealed.roster.digest)
        for folder in (self.kit.folder, self.kit.own):
            write_file(folder / ACCEPTED, self.text)


def _terms(study: Study) -> dict[str, Any]:
    return {**json.loads(study.terms), "server": study.server}


SIGNING, CONNECTION = "signing.pem", "connection.key"
ACCEPTED, ROWS, MADE_IN = "study.sealed", "rows.json", "made-in"
"""In the site's own folder: its keys, what it has accepted, where its rows are, and its kit."""

STATE, HOME, KEYS = "state", "home", "keys"
"""Folders in a kit: of the running site, of its pages, and of keys, which no kit may have."""


def own_folder(study: str, site: str) -> Path:
    """Return the folder of a site's keys: `sites/STUDY/SITE` in `FEDCAL_HOME`.

    Without this variable in `~/.local/share/fedcal`; InputError for a user without a home.
    """
    home = path_of(os.environ.get("FEDCAL_HOME") or "~/.local/share/fedcal")
    if home.parts[0] == "~":
        raise InputError("this user has no home folder: set FEDCAL_HOME to a folder for keys")
    return home.absolute() / "sites" / study / site


def check_kit(folder: Path, known: Collection[str] | None = None) -> None:
    """InputError if a kit has more than these names, or a link or special file anywhere.

    None = of a site that has joined: keys, and links in place of its files, are refused.
    """
    if known is None:  # the site may be running: no look into what Flower makes and deletes
        paths = [*folder.glob("*"), *folder.glob("*/*")]
    else:
        flowers = folder.glob(f"{STATE}/flower-*/**/*")  # made anew at each start
        paths = sorted({*folder.rglob("*")} - {*flowers})
    for path in paths:
        top, is_kit = path.relative_to(folder).parts[0], not path.is_symlink()
        if known is None:
            is_kit &= top != KEYS
        elif path.is_dir():
            is_kit &= top in known and top in (STATE, HOME)
        else:
            is_kit &= top in known and path.is_file() and path.stat().st_nlink == 1
        if not is_kit:
            raise InputError(
                f"{path} is not part of a kit. If it is yours, move it away; else delete the "
                "folder, and ask for the kit again"
            )
