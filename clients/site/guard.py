"""A site's folder with its memory-mapped rows, and the checks before a real site answers.

A message to a real site is answered by a process of its own. It maps the rows, so that only those
that a question needs are read, and never parses the file that they came from.

A server that follows the protocol passes every check. Of one that does not, the site believes
nothing: plan and questions are those of the terms that it has accepted and checked (`own_terms`).
What was sent is kept, and sent again word for word, by `records`: a second answer to a round would
be a second release.
"""

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.clients.answers import check_columns
from fedcal.clients.site.policy import Policy
from fedcal.core import checks, numerics
from fedcal.core.checks import InputError, damaged, integer, like, needed, same, system_errors
from fedcal.core.naming import digest_of
from fedcal.core.shards import NO_SUBJECTS, Shards, text_of
from fedcal.privacy.agreement import Terms
from fedcal.privacy.query import RUN, Asked, Request
from fedcal.secure_aggregation.keys import SigningKey, read_key
from fedcal.secure_aggregation.roster import Roster
from fedcal.storage.atomic import locked

SITE, LOCK = "site.json", "lock"
TERMS = "terms.json"
WITH_POLICY = "secure aggregation needs a roster, a signing key and a policy together"
VERSION = 5
OPTIONAL = ("subjects", "groups", "other", "inputs")
ARRAYS = ("logits", "labels", *OPTIONAL)


@dataclass(frozen=True)
class Prepared:
    """Prepared site: its rows and its statement about itself.

    Attributes
    ----------
    folder
        where it is kept, and where answers and results go
    shards
        of one client
    names
        of the classes
    number
        of this client, from 0, where somebody knows it: in a simulation
    simulated
        on one machine: a policy is not needed
    seed
        of a simulated site's coins and noise; None = they are the operating system's
    sign_key_file
        with the key that this site signs by; None = it is in no federation
    roster
        of the federation that it is in, as it was pinned at its start; None = of none
    policy
        its limits; None = it has none
    server
        who asks: HOST:PORT of the SuperLink; "" = nobody said
    """

    folder: Path
    shards: Shards
    names: tuple[str, ...]
    number: int | None
    simulated: bool = False
    seed: int | None = None
    sign_key_file: Path | None = None
    roster: Roster | None = None
    policy: Policy | None = None
    server: str = ""

    @cached_property
    def digest(self) -> str:
        """Digest of the class names."""
        return digest_of(self.names)

    @cached_property
    def sign_key(self) -> SigningKey | None:
        """Signing key of this site under the protocol of secure aggregation."""
        return None if self.sign_key_file is None else read_key(self.sign_key_file)

    @property
    def place(self) -> int | None:
        """Number of the site in the roster."""
        if self.roster is None or self.sign_key is None:
            return None
        return self.roster.number_of(self.sign_key.public)

    @cached_property
    def terms(self) -> Terms | None:
        """Terms that this site has accepted, checked then; None = it answers nothing."""
        path = self.folder / TERMS
        with (
            system_errors(f"{TERMS} of this site cannot be read"),
            damaged(f"{TERMS} of this site is damaged: start fedcal site again"),
        ):
            return Terms.from_plain(json.loads(path.read_bytes())) if path.exists() else None


def count_file(folder: Path) -> Path | None:
    """Return that file of a site; None = in the folder, or not known."""
    try:
        count, *_ = json.loads((folder / SITE).read_text("utf-8"))["count_files"]
    except (OSError, LookupError, TypeError, ValueError):
        return None
    return count and Path(count)


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
        checks.same(f"version of {folder} ({again})", site["version"], VERSION)
        arrays: dict[str, NDArray[Any]] = {}
        for name in site["arrays"]:
            with system_errors(f"{name}.npy of this site cannot be read"):
                arrays[name] = np.asarray(np.load(folder / f"{name}.npy", "r", allow_pickle=False))
        offsets = np.array([0, len(arrays["labels"])])
        kind = checks.one_of("input", site["input"], numerics.KINDS)
        columns: dict[str, Any] = {name: arrays[name] for name in OPTIONAL if name in arrays}
        columns |= {
            "group_names": tuple(site["group_names"]),
            "names": tuple(site.get("site_names", ())),
        }
        return Prepared(
            folder=folder,
            shards=Shards(arrays["logits"], arrays["labels"], offsets, kind, **columns),
            names=tuple(site["names"]),
            number=site["number"],
            simulated=site["simulated"] is True,
            seed=site["seed"],
            sign_key_file=None if site["sign_key"] is None else Path(site["sign_key"]),
            roster=None if site["roster"] is None else Roster.from_text(site["roster"]),
            policy=None if site["policy"] is None else Policy.from_plain(site["policy"]),
            server=site["server"],
        )


MOST_NUMBERS = 1 << 22
"""Numbers of an answer, 32 MiB of them: larger ones are refused before they are computed."""


def own_terms(fields: Mapping[str, Any], run: str, site: Prepared) -> Terms:
    """Return the terms that this site has accepted, if its policy allows them now.

    Parameters
    ----------
    fields
        the run config: the job's public facts
    run
        its name

    Raises
    ------
    InputError
        One line: the site has accepted nothing, the run states other facts, or the policy does not
        allow it (today). Without a policy a site sums nothing up with others, for it need not trust
        them.
    """
    like("the name of a run", run, RUN)
    terms = needed("a study that this site has accepted", site.terms, "it answers nothing else")
    terms.check_job(fields)
    plan = terms.plan
    if plan.model.shared and not plan.committee and not site.simulated:
        raise InputError(
            f"a share of the noise protects nothing alone: trust '{plan.trust}' needs secure "
            "aggregation among the sites"
        )
    if plan.committee and not site.simulated:
        needed("--policy", site.policy, WITH_POLICY)
    if site.policy is not None:
        site.policy.check(terms, site.roster)
    return terms


def check(fields: Mapping[str, Any], asked: Asked, site: Prepared) -> tuple[Request, Terms]:
    """Return the request as this site answers it by its own terms, and these terms.

    Formal guarantee: what `fedcal.clients.answers.contribute` makes of the request is the answer
    to a question that the terms name for this round, clipped to their bound, with their noise and
    their coins; nothing in it but the question's moving parameters is from the server.

    Parameters
    ----------
    fields
        the run config: the job's public facts
    asked
        as it came

    Raises
    ------
    InputError
        One line that says what differs, or what the site's policy does not allow; nothing in it
        comes from a row.
    """
    terms = own_terms(fields, asked.run, site)
    request, reads = terms.request(asked), asked.query.reads
    integer("the length of an answer", request.bound.length, 0, MOST_NUMBERS)
    if reads is None and site.shards.inputs is not None:
        raise InputError("the question is about scores, this site has rows to train on")
    if reads is not None:
        from fedcal.training.networks import need_torch

        same("shape of the network's inputs", text_of(reads), text_of(site.shards.input_shape))
        need_torch()
    if request.bound.per == "subject" and site.shards.subjects is None:
        raise InputError(NO_SUBJECTS)
    check_columns(site.shards, request.query)
    return request, terms
