"""A site's folder: its rows as memory-mapped arrays, what it is, and what it takes part in.

A message to a real site is answered by a process of its own. It maps the rows, so that only those
that a question needs are read, and never parses the file that they came from.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.clients.site.policy import CPU_SECONDS, Policy
from fedcal.clients.site.process.limits import COPIES, MEMORY_MIB
from fedcal.core import checks, kinds, types
from fedcal.core.classes import class_names, digest_of
from fedcal.core.errors import InputError, damaged, system_errors
from fedcal.core.shards import Shards
from fedcal.privacy.agreement import Terms
from fedcal.secure_aggregation.keys import SigningKey, read_key
from fedcal.secure_aggregation.roster import Roster
from fedcal.storage.atomic import locked, whole_file, write_whole

SITE, LOCK = "site.json", "lock"
FEDERATION, POLICY, TERMS = "federation.toml", "site.toml", "terms.json"
WITH_POLICY = "secure aggregation needs --federation, --sign-key and --policy together"
_VERSION = 3
_OPTIONAL = ("subjects", "groups", "other", "inputs")
_ARRAYS = ("logits", "labels", *_OPTIONAL, "test_logits", "test_labels", "test_inputs")


@dataclass(frozen=True)
class Prepared:
    """Prepared site: its rows and its statement about itself.

    Attributes
    ----------
    folder
        where it is kept, and where answers and results go
    shards
        of one client
    test
        logits (m, c) and labels (m,) that a result is judged on; None = there are none
    test_inputs
        (m, ...), what a model reads of these rows; or None
    names
        of the classes
    number
        of this client, from 0, where somebody knows it: in a simulation
    simulated
        take the seed of coins and noise from the request
    sign_key_file
        with the key that this site signs by; None = it is in no federation
    has_policy
        whether the folder holds a policy
    server
        who asks: HOST:PORT of the SuperLink; "" = nobody said
    """

    folder: Path
    shards: Shards
    test: tuple[types.Floats, types.Integers] | None
    test_inputs: NDArray[Any] | None
    names: tuple[str, ...]
    number: int | None
    simulated: bool
    sign_key_file: Path | None = None
    has_policy: bool = False
    server: str = ""

    @cached_property
    def digest(self) -> str:
        """Digest of the class names."""
        return digest_of(self.names)

    @cached_property
    def sign_key(self) -> SigningKey | None:
        """Signing key of this site under the protocol of secure aggregation."""
        return None if self.sign_key_file is None else read_key(self.sign_key_file)

    @cached_property
    def roster(self) -> Roster | None:
        """The federation that this site is in, as it was pinned at its start."""
        return None if self.sign_key_file is None else Roster.read(self.folder / FEDERATION)

    @property
    def place(self) -> int | None:
        """Number of the site in the roster."""
        if self.roster is None or self.sign_key is None:
            return None
        return self.roster.number_of(self.sign_key.public)

    @cached_property
    def policy(self) -> Policy | None:
        """Policy of the site; None = no limits."""
        return Policy.read(self.folder / POLICY) if self.has_policy else None

    @cached_property
    def terms(self) -> Terms | None:
        """Terms that this site has accepted, checked by `prepare`; None = it answers nothing."""
        path = self.folder / TERMS
        with (
            system_errors(f"{TERMS} of this site cannot be read"),
            damaged(f"{TERMS} of this site is damaged: start fedcal site again"),
        ):
            return Terms.from_plain(json.loads(path.read_bytes())) if path.exists() else None

    @property
    def cpu_seconds(self) -> int:
        """CPU seconds that the process answering one message may take."""
        return CPU_SECONDS if self.policy is None else self.policy.cpu_seconds

    @property
    def memory_bytes(self) -> int:
        """Memory that this process may take: by the policy, and room for copies of the rows."""
        mib = MEMORY_MIB if self.policy is None else self.policy.memory_mib
        return (mib << 20) + COPIES * sum(f.stat().st_size for f in self.folder.glob("*.npy"))

    def check_policy(self, job: Mapping[str, Any], terms: Terms, length: int) -> None:
        """Refuse a run that this site has not agreed to; see `Policy.check`.

        Without a policy a site answers every run, but not under the protocol of secure
        aggregation: a site that need not trust anyone must state its limits.
        """
        if terms.plan.committee and not self.simulated:
            checks.needed("--policy", self.policy, WITH_POLICY)
        if self.policy is not None:
            self.policy.check(job, terms, length, self.roster)


def prepare(
    folder: Path,
    shards: Shards,
    *,
    test: tuple[types.Floats, types.Integers] | None = None,
    test_inputs: NDArray[Any] | None = None,
    names: Sequence[str] | None = None,
    number: int | None = None,
    simulated: bool = False,
    federation: Path | None = None,
    sign_key: Path | None = None,
    policy: Path | None = None,
    terms: Terms | None = None,
    server: str = "",
    count: Path | None = None,
) -> None:
    """Write a site's folder, which only this user can enter; an earlier site's rows are replaced.

    Parameters
    ----------
    folder
        made if it is not there; answers and results of an earlier start stay in it
    shards
        of one client
    test
        logits (m, c) and labels (m,) that a result is judged on
    test_inputs
        (m, ...), what a model reads of these rows
    names
        of the classes; None = their numbers
    number
        of this client, from 0; None = the server numbers it
    simulated
        take the seed of coins and noise from requests: only in a simulation on one machine,
        for whoever sends a seed can subtract the noise
    federation, sign_key
        files of the roster and of this site's key in it, both or none; but in a simulation they
        need a policy
    policy
        file that says what this site takes part in
    terms
        of the one job whose runs it answers, which are checked here; None = it answers nothing
    server
        who asks, in words: the site's records say so
    count
        the file that says which records are those of this site's key; None = `count_beside` of
        `sign_key`, or in the folder in a simulation and where there is no such key

    Raises
    ------
    InputError
        If the rows are not those of one client, the names do not fit, federation, key and policy
        do not go together, or the folder holds something else, is in use or cannot be written.
    """
    arrays: dict[str, NDArray[Any]] = {"logits": shards.logits, "labels": shards.labels}
    for name in _OPTIONAL:
        if (column := getattr(shards, name)) is not None:
            arrays[name] = column
    if test is not None:
        arrays |= {"test_logits": test[0], "test_labels": test[1]}
        if test_inputs is not None:
            arrays["test_inputs"] = test_inputs
    named = class_names(names, shards.classes)
    if federation is not None and sign_key is not None and not simulated:
        own, sites = read_key(sign_key).public, Roster.read(federation).sites
        shards = replace(shards, names=tuple(site.name for site in sites if site.key == own))
    texts = _texts_of(federation, sign_key, policy, digest_of(named), simulated)
    if terms is not None:
        terms.check()
        _check_rows(terms, shards, digest_of(named), simulated)
        texts[TERMS] = json.dumps(terms.to_plain()).encode()
    if count is None and sign_key is not None and not simulated:
        count = count_beside(sign_key)
    site = {
        "version": _VERSION,
        "names": named,
        "input": shards.input,
        "group_names": shards.group_names,
        "site_names": shards.names,
        "number": number,
        "simulated": simulated,
        "sign_key": None if sign_key is None else str(sign_key.absolute()),
        "has_policy": policy is not None,
        "server": server,
        "count_files": [count and str(count.absolute())],  # 0.2.0 knew two
        "arrays": list(arrays),
    }
    _make_private(folder)
    with alone(folder):
        for name in (FEDERATION, POLICY, TERMS):
            (folder / name).unlink(missing_ok=True)
        for name, text in texts.items():
            write_whole(folder / name, text)
        for name, array in arrays.items():
            with whole_file(folder / f"{name}.npy") as file:
                np.save(file, array, allow_pickle=False)
        write_whole(folder / SITE, json.dumps(site))  # last: whoever reads it finds the arrays


def count_beside(key: Path) -> Path:
    """Return the file that says which records are those of a private key, beside it."""
    file = key.resolve()
    return file.with_name(f"{file.name}.records")


def count_file(folder: Path) -> Path | None:
    """Return that file of a site; None = in the folder, or not known."""
    try:
        count, *_ = json.loads((folder / SITE).read_text("utf-8"))["count_files"]
    except (OSError, LookupError, TypeError, ValueError):
        return None
    return count and Path(count)


def _check_rows(terms: Terms, shards: Shards, classes: str, simulated: bool) -> None:
    """InputError for terms of a job about other classes, or other scores, than a site has."""
    job = terms.job
    for name, own in (("class-digest", classes), ("input", shards.input)):
        checks.same(f"{name} of the job", job[name] or own, own)
    checks.same("number of classes", terms.plan.federation.classes, shards.classes)
    if terms.plan.private and not simulated:
        # the plan of a seeded run has no room for the errors of the draws that are made here
        checks.same("noise-source of the job", job["noise-source"], "system")


def _texts_of(
    federation: Path | None,
    sign_key: Path | None,
    policy: Path | None,
    classes: str,
    simulated: bool,
) -> dict[str, bytes]:
    """Return the checked files on federation, key and policy, by their names in the folder."""
    lacks_policy = federation is not None and policy is None and not simulated
    if (federation is None) != (sign_key is None) or lacks_policy:
        raise InputError(WITH_POLICY)
    roster, texts = None, dict[str, bytes]()
    if federation is not None and sign_key is not None:
        roster, key = Roster.read(federation), read_key(sign_key)
        what = f"a site with the public key of {sign_key}, {key.public.hex()},"
        checks.needed(what, roster.number_of(key.public), f"{federation} has none")
        checks.same(f"class digest of {federation}", roster.class_digest or classes, classes)
        texts[FEDERATION] = roster.to_toml().encode()
    if policy is not None:
        rules = Policy.read(policy)
        rules.check_roster(roster)
        checks.same(f"class digest of {policy}", rules.class_digest or classes, classes)
        texts[POLICY] = policy.read_bytes()
    return texts


def _make_private(folder: Path) -> None:
    """Make a site's folder, or check that it is one and that only its owner can enter it."""
    with system_errors(f"cannot write {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        held = {path.name for path in folder.iterdir()}
        own = {LOCK, FEDERATION, POLICY, TERMS, *(f"{name}.npy" for name in _ARRAYS)}
        if SITE not in held and held - own:
            raise InputError(f"{folder} contains something else; a site needs a separate folder")
        folder.chmod(0o700)


def alone(folder: Path) -> AbstractContextManager[None]:
    """Hold a site's folder; InputError if another process does."""
    return locked(folder / LOCK, f"another process runs the site of {folder}")


def prepared(folder: Path) -> Prepared:
    """Return the site that `prepare` wrote; its rows are mapped, not read.

    Raises InputError, one line without a word about rows, if a file is missing, damaged or not
    readable.
    """
    again = "start fedcal site again"
    with (
        system_errors(f"{SITE} of this site cannot be read"),
        damaged(f"a file of this site is damaged: {again}", EOFError),
    ):
        site = json.loads((folder / SITE).read_text("utf-8"))
        checks.same(f"version of {folder} ({again})", site["version"], _VERSION)
        arrays: dict[str, NDArray[Any]] = {}
        for name in site["arrays"]:
            with system_errors(f"{name}.npy of this site cannot be read"):
                arrays[name] = np.asarray(np.load(folder / f"{name}.npy", "r", allow_pickle=False))
        offsets = np.array([0, len(arrays["labels"])])
        kind = checks.one_of("input", site["input"], kinds.KINDS)
        columns: dict[str, Any] = {name: arrays[name] for name in _OPTIONAL if name in arrays}
        columns |= {
            "group_names": tuple(site["group_names"]),
            "names": tuple(site.get("site_names", ())),
        }
        return Prepared(
            folder=folder,
            shards=Shards(arrays["logits"], arrays["labels"], offsets, kind, **columns),
            test=(arrays["test_logits"], arrays["test_labels"])
            if "test_logits" in arrays
            else None,
            test_inputs=arrays.get("test_inputs"),
            names=tuple(site["names"]),
            number=site["number"],
            simulated=site["simulated"] is True,
            sign_key_file=None if site["sign_key"] is None else Path(site["sign_key"]),
            has_policy=site["has_policy"] is True,
            server=site["server"],
        )
