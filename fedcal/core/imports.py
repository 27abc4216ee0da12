"""Packages that only some features need, and code that users name: imported where used.

Classes by name, complete or not at all: what is missing is found at import.

What a process does not need it does not load: names of a package, and classes by name, may be
imported when they are asked for.
"""

import importlib
import os
import re
import sys
from collections import UserDict
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any, TypeVar

from fedcal.core.checks import InputError, refuse


def install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'fedcal[{extra}]'"


def absent(package: str, extra: str, purpose: str) -> InputError:
    """Return the error for a missing package that `purpose` needs."""
    return InputError(
        f"{purpose} needs the package {package}, which is not installed: {install(extra)}"
    )


def need(module: str, extra: str, purpose: str) -> Any:
    """Import `module`, or InputError that says what it is for and which extra installs it."""
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ImportError as error:
        lacks = isinstance(error, ModuleNotFoundError) and (error.name or "")
        if lacks and lacks.partition(".")[0] == package:
            raise absent(package.replace("_", "-"), extra, purpose) from None
        why = str(error).partition("\n")[0]
        raise InputError(f"{purpose}: {package} cannot be imported: {why}") from None


def named(option: str, text: str) -> Any:
    """Import `module:name` from the working directory or what is installed; or InputError."""
    module, _, name = text.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as e:  # noqa: BLE001  it is the user's own code
        raise InputError(f"{option} {text} failed: {type(e).__name__}: {e}") from None
    finally:
        sys.path.remove(os.getcwd())


T = TypeVar("T")


def lazily(package: str, names: Collection[str], *modules: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package whose names are imported when they are used.

    Parameters
    ----------
    names
        that it has; another one is refused
    modules
        of the package, in which a name is looked for one after the other
    """

    def find(name: str) -> Any:
        for module in modules if name in names else ():
            if hasattr(found := import_module(f"{package}.{module}"), name):
                return getattr(found, name)
        return refuse(package, name)

    return find


class Lazy(UserDict[str, type[T]]):
    """Classes by name; one that stands as its module's name is imported when it is asked for.

    Parameters
    ----------
    key
        attribute of a class with its name
    known
        name -> class or module
    """

    data: dict[str, Any]

    def __init__(self, key: str, known: Mapping[str, Any]) -> None:
        super().__init__(known)
        self.key = key

    def __getitem__(self, name: str) -> type[T]:
        """Return the class; KeyError if there is none of this name."""
        found: type[T] | str = self.data[name]
        if isinstance(found, str):
            members = [m for m in vars(import_module(found)).values() if isinstance(m, type)]
            own = (m for m in members if vars(m).get(self.key) == name)
            found = self.data[name] = registry(*own, key=self.key)[name]
        return found


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
