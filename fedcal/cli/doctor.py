"""Show what is installed; and what each extra and this system lack.

The exit code is always 0.
"""

import platform
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from fedcal import __version__
from fedcal.cli import parameters
from fedcal.core import flower_internals_site, imports, pages
from fedcal.core.checks import InputError
from fedcal.results import terminal
from fedcal.run.engines.superlink import scripts
from fedcal.storage.atomic import posix_locks

_DEVELOPERS = {"all", "bench", "dev", "docs"}


class Package(NamedTuple):
    """A package that another one needs, the version that is there ("" = none), and if that fits."""

    name: str
    version: str
    fits: bool
    needed: str

    def __str__(self) -> str:
        return f"{self.name}{self.needed} (has {self.version})" if self.version else self.name


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
    from packaging.requirements import Requirement

    try:
        lines = metadata.requires(of) or ()
    except metadata.PackageNotFoundError:
        raise InputError(f"{of} is not installed by pip: its requirements are not known") from None
    for requirement in map(Requirement, lines):
        marker = requirement.marker
        asked_by = (e for e in ("", extra) if marker is None or marker.evaluate({"extra": e}))
        if next(asked_by, None) != extra:
            continue
        name, wants = requirement.name, requirement.specifier
        try:
            there = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield Package(name, "", False, str(wants))
            continue
        yield Package(name, there, wants.contains(there, prereleases=True), str(wants))
        for more in requirement.extras:
            yield from packages(more, requirement.name)


def command(quiet: parameters.Quiet = False, json: parameters.Json = False) -> None:
    """Inspect the installation and show the result.

    Examples
    --------
    fedcal doctor
    fedcal doctor --json
    """
    facts = look()
    versions = pages.Table("", ("", "here"), [*facts["versions"].items()])
    terminal.show([facts["summary"], *facts["lacking"], versions], facts, json=json, quiet=quiet)


def look() -> dict[str, Any]:
    """Return what `--json` prints: sentences, and versions of all that may be used."""
    names = metadata.metadata("fedcal").get_all("Provides-Extra") or ()
    needed = {name: [*packages(name)] for name in ("", *names) if name not in _DEVELOPERS}
    lost = {name: ", ".join(str(p) for p in own if not p.fits) for name, own in needed.items()}
    lacking = [
        f"fedcal[{name}] lacks {which}: {imports.install(name)}"
        for name, which in lost.items()
        if which
    ]
    lacking += _refused()
    overall = "all but what the next lines name" if lacking else "with every option"
    versions = {p.name: p.version or "none" for own in needed.values() for p in own}
    return {
        "summary": f"All commands of fedcal run here, {overall}.",
        "lacking": lacking,
        "versions": {"fedcal": __version__, "Python": platform.python_version()} | versions,
    }


def _refused() -> Iterator[str]:
    """Yield what this system, or this Flower, does not run."""
    flower = ("Flower's engine", "superlink", "supernode", "superexec", "flwr")
    checks: dict[str, Callable[[], object]] = {
        "train --out, site, study": lambda: posix_locks(Path("its folder")),
        "site, simulate --engine grpc": lambda: scripts(*flower),
        "site, study, simulate --engine grpc": flower_internals_site.check_flower,
    }
    for commands, check in checks.items():
        try:
            check()
        except (InputError, ImportError) as e:
            yield f"fedcal {commands}: {e}"
