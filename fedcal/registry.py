"""Tables of classes by name: what a member lacks is found at import, not in the middle of a run."""

from __future__ import annotations

import inspect
from typing import TypeVar

T = TypeVar("T")


def registry(*members: type[T], key: str = "name") -> dict[str, type[T]]:
    """The members by their class variable `key`.

    Raises
    ------
    TypeError
        If a member lacks an abstract method, or has no value for a class variable that is
        annotated somewhere in its family; or two members have the same name.
    """
    found: dict[str, type[T]] = {}
    for member in members:
        lacks = {*getattr(member, "__abstractmethods__", ()), *_unset(member)}
        lacks |= set() if hasattr(member, key) else {key}
        if lacks:
            raise TypeError(f"{member.__name__} lacks {', '.join(sorted(lacks))}")
        name = str(getattr(member, key))
        if name in found:
            raise TypeError(f"{member.__name__} and {found[name].__name__} are both {name!r}")
        found[name] = member
    return found


def _unset(member: type[object]) -> set[str]:
    """Class variables that are annotated and have no value."""
    return {
        name
        for cls in member.__mro__
        for name, annotation in inspect.get_annotations(cls).items()
        if "ClassVar" in str(annotation) and not hasattr(member, name)
    }
