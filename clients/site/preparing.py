"""Write a site's folder: rows, keys, policy and terms are checked before they are there.

The process that answers does not load this; it reads the folder (`fedcal.clients.site.guard`).
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.clients.site import guard
from fedcal.clients.site.policy import Policy
from fedcal.core import checks
from fedcal.core.checks import InputError, system_errors
from fedcal.core.naming import class_names, digest_of
from fedcal.core.shards import Shards
from fedcal.privacy.agreement import Terms
from fedcal.privacy.making import check_terms
from fedcal.secure_aggregation.keys import read_key
from fedcal.secure_aggregation.roster import Roster
from fedcal.storage.atomic import atomic_file, write_file


def prepare(
    folder: Path,
    shards: Shards,
    *,
    names: Sequence[str] | None = None,
    number: int | None = None,
    simulated: bool = False,
    seed: int | None = None,
    roster: Roster | None = None,
    sign_key: Path | None = None,
    policy: Policy | None = None,
    terms: Terms | None = None,
    server: str = "",
) -> None:
    """Write a site's folder, which only this user can enter; an earlier site's rows are replaced.

    Parameters
    ----------
    folder
        made if it is not there; answers and results of an earlier start stay in it
    shards
        of one client
    names
        of the classes; None = their numbers
    number
        of this client, from 0; None = the server numbers it
    simulated
        in a simulation on one machine, where a policy is not needed
    seed
        of a simulated site's coins and noise: whoever knows it can subtract the noise; None = they
        are the operating system's
    roster, sign_key
        the federation and the file of this site's key in it, both or none; but in a simulation
        they need a policy
    policy
        what this site takes part in
    terms
        of the one job whose runs it answers, which are checked here; None = it answers nothing
    server
        who asks, in words: the site's records say so

    Raises
    ------
    InputError
        If the rows are not those of one client, the names do not fit, federation, key and policy
        do not go together, or the folder holds something else, is in use or cannot be written.
    """
    arrays: dict[str, NDArray[Any]] = {"logits": shards.logits, "labels": shards.labels}
    for name in guard.OPTIONAL:
        if (column := getattr(shards, name)) is not None:
            arrays[name] = column
    named = class_names(names, shards.classes)
    given = (roster, sign_key) if simulated else (roster, sign_key, policy)
    if len({one is None for one in given}) > 1:
        raise InputError(guard.WITH_POLICY)
    if roster is not None and sign_key is not None:
        key, federation = read_key(sign_key), f"the federation {roster.name}"
        what = f"a site with the public key of {sign_key}, {key.public.hex()},"
        place = checks.needed(what, roster.number_of(key.public), f"{federation} has none")
        classes = roster.class_digest or digest_of(named)
        checks.same(f"class digest of {federation}", classes, digest_of(named))
        if policy is not None:
            policy.check_roster(roster)
        if not simulated:
            shards = replace(shards, names=(roster.sites[place].name,))
    if terms is not None:
        check_terms(terms)
        _check_rows(terms, shards, digest_of(named), simulated)
    # the file that says which records are those of the key
    count = None if sign_key is None or simulated else f"{sign_key.resolve()}.records"
    site = {
        "version": guard.VERSION,
        "names": named,
        "input": shards.input,
        "group_names": shards.group_names,
        "site_names": shards.names,
        "number": number,
        "simulated": simulated,
        "seed": seed if simulated else None,
        "sign_key": None if sign_key is None else str(sign_key.absolute()),
        "roster": None if roster is None else roster.to_text(),
        "policy": None if policy is None else policy.to_plain(),
        "server": server,
        "count_files": [count],  # 0.2.0 knew two
        "arrays": list(arrays),
    }
    _make_private(folder)
    with guard.alone(folder):
        (folder / guard.TERMS).unlink(missing_ok=True)
        if terms is not None:
            write_file(folder / guard.TERMS, json.dumps(terms.to_plain()))
        for name, array in arrays.items():
            with atomic_file(folder / f"{name}.npy") as file:
                np.save(file, array, allow_pickle=False)
        write_file(folder / guard.SITE, json.dumps(site))  # last: whoever reads it finds the arrays


def _check_rows(terms: Terms, shards: Shards, classes: str, simulated: bool) -> None:
    """InputError for terms of a job about other classes, or other scores, than a site has."""
    job = terms.job
    for name, own in (("class-digest", classes), ("input", shards.input)):
        checks.same(f"{name} of the job", job[name] or own, own)
    checks.same("number of classes", terms.plan.federation.classes, shards.classes)
    if terms.plan.private and not simulated:
        # the plan of a seeded run has no room for the errors of the draws that are made here
        checks.same("noise-source of the job", job["noise-source"], "system")


def _make_private(folder: Path) -> None:
    """Make a site's folder, or check that it is one and that only its owner can enter it."""
    with system_errors(f"cannot write {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        held = {path.name for path in folder.iterdir()}
        own = {guard.LOCK, guard.TERMS, *(f"{name}.npy" for name in guard.ARRAYS)}
        if guard.SITE not in held and held - own:
            raise InputError(f"{folder} contains something else; a site needs a separate folder")
        folder.chmod(0o700)
