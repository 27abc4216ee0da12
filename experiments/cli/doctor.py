"""Show what is installed, what each command lacks, and the machine.

The exit code is always 0.
"""

import platform
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from fedcal import __version__
from fedcal.core import checks, flower_internals_site, imports, pages
from fedcal.core.numerics import usable_cores
from fedcal.experiments.cli import main, parameters
from fedcal.experiments.report import terminal
from fedcal.experiments.runs.engines.superlink import scripts
from fedcal.storage.atomic import posix_locks

_LOCKING = ("train --out", "site", "study")
_FLOWER = ("site", "simulate --engine grpc")
_DEVELOPERS = {"all", "bench", "dev", "docs"}


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
    from packaging.requirements import Requirement

    try:
        lines = metadata.requires(of) or ()
    except metadata.PackageNotFoundError:
        raise checks.InputError(
            f"{of} is not installed by pip: its requirements are not known"
        ) from None
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


def command(quiet: parameters.Quiet = False, json: parameters.Json = False) -> None:
    """Inspect the installation and show the result.

    Examples
    --------
    fedcal doctor
    fedcal doctor --json
    """
    facts = look()
    parts = ("versions", "extras", "machine")
    rows = [(name, str(value or "?")) for part in parts for name, value in facts[part].items()]
    told = [facts["summary"], *facts["lacking"], pages.Table("", ("", "here"), rows)]
    terminal.show(told, facts, json=json, quiet=quiet)


def look() -> dict[str, Any]:
    """Return what `--json` prints: sentences, lines by command, versions, extras, the machine."""
    versions = {package.name: str(package).partition(" ")[2] for package in packages()}
    names = metadata.metadata("fedcal").get_all("Provides-Extra") or ()
    extras = {name: sorted(packages(name)) for name in names if name not in _DEVELOPERS}
    lost = {name: ", ".join(str(p) for p in own if not p.fits) for name, own in extras.items()}
    lacks = [*_lacking(lost), *_refused()]
    stopped = {name for lack in lacks if lack.all for name in lack.commands}
    runs = ", ".join(name for name in main.COMMANDS if " " not in name and name not in stopped)
    whole = "all but what the next lines name" if lacks else "with every option"
    return {
        "summary": f"fedcal {runs} run here, {whole}.",
        "lacking": [f"fedcal {', '.join(n.commands) or 'in Python'}: {n.what}" for n in lacks],
        "commands": {
            name: [n.what for n in lacks if name in {c.partition(" --")[0] for c in n.commands}]
            for name in main.COMMANDS
        },
        "versions": {"fedcal": __version__, "Python": platform.python_version()} | versions,
        "extras": {
            f"fedcal[{name}]": f"lacks {lost[name]}" if lost[name] else ", ".join(map(str, own))
            for name, own in extras.items()
        },
        "machine": {"system": f"{platform.system()} {platform.machine()}", "cores": usable_cores()},
    }


def _lacking(lost: Mapping[str, str]) -> Iterator[Use]:
    """Yield what each extra is for that lacks packages, and which it lacks."""
    for name in filter(lost.get, lost):
        use = EXTRAS.get(name, Use((), f"what the extra {name} is for"))
        yield use._replace(what=f"{use.what} lack {lost[name]}: {imports.install(name)}")


def _refused() -> Iterator[Use]:
    """Yield what this system, or this Flower, does not run."""
    try:
        posix_locks(Path("its folder"))
    except checks.InputError as e:
        yield Use(_LOCKING, str(e), all=True)
    try:
        scripts("Flower's engine", "superlink", "supernode", "superexec", "flwr")
    except checks.InputError as e:
        yield Use(_FLOWER, str(e), all=True)
    try:
        flower_internals_site.check_flower()
    except (checks.InputError, ImportError) as e:
        yield Use(_FLOWER, str(e), all=True)
