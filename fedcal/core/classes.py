"""Names of classes: a server and its sites agree on them before they talk."""

import hashlib
import json
from collections.abc import Sequence

from fedcal.core.errors import InputError
from fedcal.core.kinds import refuse_masked
from fedcal.core.printable import key_of, plain_names


def names_in(text: str) -> tuple[str, ...]:
    """Names by comma, as a command line has them; InputError if one is empty or there twice."""
    names = tuple(name.strip() for name in text.split(","))
    return class_names(names, len(names))


def class_names(
    names: Sequence[str] | None, classes: int, what: str = "class names"
) -> tuple[str, ...]:
    """One name for each class, in the order of the columns; None = their numbers, from "0".

    Names are in Unicode NFC. Raises InputError if there are more or fewer names than classes, or a
    name is empty, there twice (also as another form of one number: 1, 1.0), looks like another one,
    or has a control character.
    """
    if names is None:
        return tuple(map(str, range(classes)))
    refuse_masked(what, names)
    checked = tuple(plain_names(what, map(str, names)))
    if len(checked) != classes or len({*map(key_of, checked)} - {""}) < len(checked):
        allowed = f"must differ, one for each of {classes} classes, and none be empty"
        raise InputError(f"{what} {allowed}, got {len(checked)}: {quoted(checked)}")
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


def quoted(names: Sequence[str]) -> str:
    """Return the first ten names, each in quotation marks and shortened."""
    return first_names([repr(name[:40]) for name in names])


def in_a_line(names: Sequence[str]) -> str:
    """Return the classes in column order as a line; of two also which is positive."""
    positive = f" (positive: {names[1]})" if len(names) == 2 else ""
    return f"classes: {first_names(names)}{positive}"
