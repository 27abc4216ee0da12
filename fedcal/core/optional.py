"""Packages that only some features need, and code that users name: imported where used."""

import importlib
import os
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from fedcal.core.errors import InputError


class Use(NamedTuple):
    """Commands (none = Python alone), and what of them, or all of them, needs something."""

    commands: tuple[str, ...]
    what: str
    all: bool = False


_RUNS = ("simulate", "evaluate", "compare", "train")
EXTRAS = {
    "simulation": Use(_RUNS, "simulations on Ray (--engine ray, flower, --ray-address)"),
    "parquet": Use(("simulate", "evaluate", "compare", "apply", "site"), ".parquet files"),
    "datasets": Use(_RUNS, "flwr-datasets partitioners (--partition flwr:NAME)"),
    "export": Use(("export",), "PyTorch programs and ONNX models", all=True),
    "sklearn": Use((), "estimators (FederatedCalibrator, CalibratedModel)"),
    "sites": Use(("site",), "real sites, with the tested version of Flower"),
    "frames": Use((), "results as data frames of pandas (to_frame)"),
    "train": Use(("train", "site"), "training of models, with gradients by Opacus"),
}
"""The extras that people install, by name; those that are not here are developers'."""


class Package(NamedTuple):
    """A package that another one needs, the version that is there ("" = none), and if that fits."""

    name: str
    version: str
    fits: bool

    def __str__(self) -> str:
        version = f" {self.version}" + " (another is needed)" * (not self.fits)
        return self.name + version * bool(self.version)


def packages(extra: str = "", of: str = "fedcal") -> Iterator[Package]:
    """Yield the requirements of an installed package, or of one of its extras.

    Raises InputError if it was not installed, such as a folder on PYTHONPATH.

    Parameters
    ----------
    extra
        what this one adds; "" = what the package itself needs
    of
        the package; so are the extras of other packages that it asks for
    """
    from importlib import metadata

    from packaging.requirements import Requirement

    try:
        lines = metadata.requires(of) or ()
    except metadata.PackageNotFoundError:
        raise InputError(f"{of} is not installed by pip: its requirements are not known") from None
    for wanted in map(Requirement, lines):
        marker = wanted.marker
        asked_by = (e for e in ("", extra) if marker is None or marker.evaluate({"extra": e}))
        if next(asked_by, None) != extra:
            continue
        try:
            there = metadata.version(wanted.name)
        except metadata.PackageNotFoundError:
            yield Package(wanted.name, "", False)
            continue
        yield Package(wanted.name, there, wanted.specifier.contains(there, prereleases=True))
        for more in wanted.extras:
            yield from packages(more, wanted.name)


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
