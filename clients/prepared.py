"""A site's folder: its rows as memory-mapped arrays, and what it is.

A message to a real site is answered by a process of its own. It maps the rows, so that only those
that a question needs are read, and never parses the file that they came from.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.atomic import whole_file
from fedcal.checks import one_of
from fedcal.classes import class_names, digest_of
from fedcal.clients.limits import CPU_SECONDS
from fedcal.errors import InputError
from fedcal.locks import locked
from fedcal.scores import KINDS
from fedcal.shards import Shards
from fedcal.types import Floats, Integers

SITE, LOCK = "site.json", "lock"
_VERSION = 2
_OPTIONAL = ("subjects", "groups", "other", "inputs")
_ARRAYS = ("logits", "labels", *_OPTIONAL, "test_logits", "test_labels", "test_inputs")


@dataclass(frozen=True)
class Prepared:
    """A site: its rows and what it says of itself.

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
    """

    folder: Path
    shards: Shards
    test: tuple[Floats, Integers] | None
    test_inputs: NDArray[Any] | None
    names: tuple[str, ...]
    number: int | None
    simulated: bool

    @cached_property
    def digest(self) -> str:
        """Of the class names."""
        return digest_of(self.names)

    @property
    def cpu_seconds(self) -> int:
        """What one message may take."""
        return CPU_SECONDS


def prepare(
    folder: Path,
    shards: Shards,
    *,
    test: tuple[Floats, Integers] | None = None,
    test_inputs: NDArray[Any] | None = None,
    names: Sequence[str] | None = None,
    number: int | None = None,
    simulated: bool = False,
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

    Raises
    ------
    InputError
        If the rows are not those of one client, the names do not fit, or the folder holds
        something else, is in use or cannot be written.
    """
    if shards.clients != 1:
        raise InputError(f"a site is one client; these rows belong to {shards.clients}")
    arrays: dict[str, NDArray[Any]] = {"logits": shards.logits, "labels": shards.labels}
    for name in _OPTIONAL:
        if (column := getattr(shards, name)) is not None:
            arrays[name] = column
    if test is not None:
        arrays |= {"test_logits": test[0], "test_labels": test[1]}
        if test_inputs is not None:
            arrays["test_inputs"] = test_inputs
    site = {
        "version": _VERSION,
        "names": class_names(names, shards.classes),
        "input": shards.input,
        "group_names": shards.group_names,
        "number": number,
        "simulated": simulated,
        "arrays": list(arrays),
    }
    _make_private(folder)
    with alone(folder):
        for name, array in arrays.items():
            with whole_file(folder / f"{name}.npy") as file:
                np.save(file, array, allow_pickle=False)
        with whole_file(folder / SITE) as file:  # last: whoever reads it finds the arrays
            file.write(json.dumps(site).encode())


def _make_private(folder: Path) -> None:
    """Make a site's folder, or make sure that it is one and that nobody else can enter it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = {path.name for path in folder.iterdir()}
        if SITE not in held and held - {LOCK, *(f"{name}.npy" for name in _ARRAYS)}:
            raise InputError(f"{folder} holds something else; a site needs a folder of its own")
        folder.chmod(0o700)
    except OSError as e:
        raise InputError(f"cannot write {folder}: {e.strerror}") from None


def alone(folder: Path) -> AbstractContextManager[None]:
    """Hold a site's folder; InputError if another process does."""
    return locked(folder / LOCK, f"another process runs the site of {folder}")


def prepared(folder: Path) -> Prepared:
    """The site that `prepare` wrote; its rows are mapped, not read.

    Raises
    ------
    InputError
        One line without a word about rows, if a file is missing, damaged or not readable.
    """
    try:
        site = json.loads((folder / SITE).read_text("utf-8"))
        if site["version"] != _VERSION:
            raise InputError(
                f"{folder} was prepared by another version of fedcal: start fedcal site again"
            )
        found = {name: _mapped(folder / f"{name}.npy") for name in site["arrays"]}
        offsets = np.array([0, len(found["labels"])])
        kind = one_of("input", site["input"], KINDS)
        columns: dict[str, Any] = {name: found[name] for name in _OPTIONAL if name in found}
        groups = tuple(site["group_names"])
        return Prepared(
            folder=folder,
            shards=Shards(
                found["logits"], found["labels"], offsets, kind, group_names=groups, **columns
            ),
            test=(found["test_logits"], found["test_labels"]) if "test_logits" in found else None,
            test_inputs=found.get("test_inputs"),
            names=tuple(site["names"]),
            number=site["number"],
            simulated=site["simulated"] is True,
        )
    except OSError as e:
        lost = os.path.basename(e.filename or "a file")
        raise InputError(f"{lost} of this site cannot be read: {e.strerror}") from None
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, EOFError):
        raise InputError("a file of this site is damaged: start fedcal site again") from None


def _mapped(path: Path) -> NDArray[Any]:
    return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
