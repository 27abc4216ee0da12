"""What the classes are called: a server and its sites agree on the names before they talk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from fedcal.core.errors import InputError


def names_in(text: str) -> tuple[str, ...]:
    """Names by comma, as a command line has them; InputError if one is empty or there twice."""
    names = tuple(name.strip() for name in text.split(","))
    return class_names(names, len(names))


def class_names(names: Sequence[str] | None, classes: int) -> tuple[str, ...]:
    """One name for each class, in the order of the columns; None = their numbers, from "0".

    Raises InputError if there are more or fewer names than classes, or a name is empty or there
    twice.
    """
    if names is None:
        return tuple(map(str, range(classes)))
    checked = tuple(str(name) for name in names)
    if len(checked) != classes:
        raise InputError(f"{len(checked)} class names for {classes} classes; give one for each")
    if len(set(checked)) < len(checked) or not all(name.strip() for name in checked):
        raise InputError("class names must differ, and none may be empty")
    return checked


def digest_of(names: Sequence[str]) -> str:
    """SHA-256 of the names in their order, 64 hexadecimal digits.

    Equal digests mean that column j of the scores is the same class everywhere.
    """
    return hashlib.sha256(json.dumps(list(names)).encode()).hexdigest()


def called(names: Sequence[str] | None, j: int) -> str:
    """Return the name of class j in a sentence: "class 3" if it has a number only."""
    name = str(j) if names is None else names[j]
    return f"class {name}" if name.isdecimal() else name


def first_names(names: Sequence[str]) -> str:
    """Return the first ten names, separated by commas."""
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")


def in_a_line(names: Sequence[str]) -> str:
    """Return the classes in column order as a line; of two also which is positive."""
    positive = f" (positive: {names[1]})" if len(names) == 2 else ""
    return f"classes: {first_names(names)}{positive}"
