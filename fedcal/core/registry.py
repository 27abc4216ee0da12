"""Classes by name, complete or not at all: what is missing is found at import."""

import re
from typing import TypeVar

T = TypeVar("T")


def registry(*members: type[T], key: str = "name") -> dict[str, type[T]]:
    """Return the members by their `key`.

    Raises TypeError if a member lacks an abstract method or a class variable that a base declares,
    or if two have one name.
    """
    members_by_name: dict[str, type[T]] = {}
    for member in members:
        declared = [
            name
            for base in member.__mro__
            for name, kind in vars(base).get("__annotations__", {}).items()
            if re.match(r"(typing\.)?ClassVar\b", str(kind))
        ]
        unset = [name for name in declared if not hasattr(member, name)]
        lacks = sorted({*getattr(member, "__abstractmethods__", ()), *unset})
        if lacks:
            raise TypeError(f"{member.__name__} lacks {', '.join(lacks)}")
        name = getattr(member, key)
        if name in members_by_name:
            raise TypeError(
                f"{member.__name__} and {members_by_name[name].__name__} are both called {name!r}"
            )
        members_by_name[name] = member
    return members_by_name
