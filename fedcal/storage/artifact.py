"""Results of a run: a calibrator, metrics, prediction sets, a model.

Engines, result files and reports ask an artifact what it holds and how to show it; none of them
knows its class.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import InputError, listed, located, same
from fedcal.core.naming import class_names
from fedcal.core.numerics import Floats, Integers, Kind
from fedcal.core.pages import Part, Table
from fedcal.core.shards import Shards
from fedcal.storage.atomic import atomic_file
from fedcal.storage.npz import read_npz

FORMAT = "fedcal-artifact"
VERSION = 1
"""Version of all files that `write_arrays` makes."""

OUTCOME = "outcome.json"
"""The file that says that an outcome is whole."""

ROUND_FILES = "round-[0-9]*"
"""Pattern of the files of a run's artifacts after each release."""

CHECKPOINT = "checkpoint.json"
"""The file of an unfinished run, in its folder."""

_LINES = 6

Header = dict[str, Any]
Arrays = dict[str, NDArray[Any]]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Holdout:
    """Test rows that evaluate an artifact, for the researcher's eyes: not a private release.

    Attributes
    ----------
    logits
        (n, c); of probabilities log(max(p, 1e-12))
    probs
        (n, c) of the model itself
    labels
        (n,)
    seed
        of what is drawn to judge (a bootstrap)
    owner, names
        (n,) the client of each row by its place among the names; None = nobody says whose they are
    group, group_names
        (n,) the group of each row by its place among the names; None = nobody says
    class_names
        what the columns are called; None = they have numbers
    fit_rows
        how many rows the run was on, for what chance may do and never told; None = nobody says
    inputs
        (n, ...), what a model reads of each row; None = nobody says
    fit
        the clients' own rows, where what they do with these at home is judged
    kept
        what an artifact computed of these rows and needs again, by a key of its own
    """

    logits: Floats
    probs: Floats
    labels: Integers
    seed: int = 0
    owner: Integers | None = None
    names: tuple[str, ...] = ()
    group: Integers | None = None
    group_names: tuple[str, ...] = ()
    class_names: tuple[str, ...] | None = None
    fit_rows: int | None = None
    inputs: NDArray[Any] | None = None
    fit: Shards | None = None
    kept: dict[Any, Any] = field(default_factory=dict, repr=False)


class Artifact(ABC):
    """Result of a run. Only `arrays` and `from_arrays` must be written.

    A subclass that sets `form` is found by it in `ARTIFACTS` from then on.

    Attributes
    ----------
    form
        what it is, and the name of its file in a result folder (`calibrator` of all
        calibrators, whatever their own kind)
    noun
        what sentences about a run call it
    rescores
        it gives test rows other probabilities: a report shows them before and after it
    class_names
        of the columns, in their order; None = nobody said (see `of_classes`)
    """

    form: ClassVar[str]
    noun: ClassVar[str] = "result"
    rescores: ClassVar[bool] = False
    class_names: tuple[str, ...] | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "form" in cls.__dict__:
            ARTIFACTS[cls.form] = cls

    @abstractmethod
    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """All of it as arrays: what Flower's records and the files hold."""

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the artifact of these arrays; KeyError or InputError if they do not fit."""

    # -- files ----------------------------------------------------------------------------

    @classmethod
    def files(cls) -> tuple[str, ...]:
        """Names of all that `write` may leave in a result folder."""
        return (f"{cls.form}.npz",)

    def write(self, folder: Path, stem: str, test: Holdout | None = None) -> list[str]:
        """Write its files into an existing folder; `read` reads them.

        Parameters
        ----------
        stem
            what the file is called, without its suffix
        test
            with it also what is worth keeping of the test rows

        Returns
        -------
        list[str]
            the names of the files
        """
        path = folder / f"{stem}.npz"
        write_arrays(path, {"format": FORMAT, "form": self.form, **self.naming}, self.arrays())
        return [path.name]

    @classmethod
    def read(cls, folder: Path, stem: str) -> Artifact:
        """Return the saved artifact.

        Raises InputError if the file cannot be read, or holds something else.
        """
        return cls.load(folder / f"{stem}.npz")

    @classmethod
    def load(cls, path: Path, **instead: NDArray[Any]) -> Self:
        """Return the artifact in a file that `write` wrote, with some arrays replaced.

        Raises InputError if the file cannot be read, or holds something else.
        """

        def made(header: Header, arrays: Arrays) -> Any:
            same("form of the artifact", header["form"], cls.form)
            return cls.from_arrays(arrays | instead)

        loaded: Self = read_arrays(path, FORMAT, ("form",), made, cls.form)
        return loaded

    @property
    def naming(self) -> Header:
        """Entries of the file's header about names of classes, which `read_arrays` reads."""
        return {} if self.class_names is None else {"class_names": list(self.class_names)}

    # -- what is known of it -----------------------------------------------------------------

    def learnt_on(self, input: Kind) -> None:  # noqa: B027  few need to know
        """Hear what the clients' rows were: logits or probabilities."""

    def of_data(self, name: str) -> None:  # noqa: B027  few need to know
        """Hear what the clients' data are called; "" = rows of real sites."""

    def of_classes(self, names: tuple[str, ...] | None) -> None:
        """Hear what the classes are called; pages and files say so from then on."""
        object.__setattr__(self, "class_names", names)

    def under(self, statement: Sequence[str]) -> Artifact:
        """Return the artifact with its privacy statement, in sentences, for readers of its file."""
        return self

    def of_sites(self, sites: Mapping[str, Any]) -> Artifact:
        """Return the artifact with its promise limited to the real sites that took part.

        Parameters
        ----------
        sites
            the key of `result.json`: `enrolled`, `answered`, names `absent`, rounds `missed`
        """
        return self

    def record(self) -> dict[str, Any]:
        """Return the plain values that it adds to a line of `rounds.jsonl`."""
        return {}

    def at_limits(self) -> list[str]:
        """Return a sentence for each kind of parameter that stands at a limit of its own."""
        return []

    def results(self) -> dict[str, Any]:
        """Return the finite values that it adds to `result.json`, from the release alone."""
        return {}

    def judge(self, test: Holdout) -> dict[str, Any]:
        """Further such keys, which test rows tell of it, or in place of some of the others."""
        return {}

    def intervals(self, test: Holdout) -> dict[str, Any]:
        """Further such keys that take long; asked for only where they are shown or written."""
        return {}

    def glance(self, test: Holdout) -> dict[str, float]:
        """Return a few metrics on test rows for lines of `rounds.jsonl`; {} = none."""
        return {}

    def page(self) -> list[Part]:
        """Return its part of a report, from top to bottom."""
        return []

    def lines(self) -> list[str]:
        """Return a few lines for a log: the head of its first table, or its name."""
        table = next((part for part in self.page() if isinstance(part, Table)), None)
        return [repr(self)] if table is None else table.head(_LINES)

    def evaluation_page(self, test: Holdout) -> list[Part]:
        """Further parts below, which test rows tell of it."""
        return []


def at_end(what: str, low: float, high: float, ends: tuple[float, float]) -> list[str]:
    """Return the sentence that an interval of released numbers touches an end of their range."""
    text = f"{what} is at an end of its range, {ends[0]:g} to {ends[1]:g}: the best may lie beyond."
    return [text] * (low <= ends[0] * (1 + 1e-6) or high >= ends[1] * (1 - 1e-6))


ARTIFACTS: dict[str, type[Artifact]] = {}
"""Form -> class, which reads what it wrote."""


def write_arrays(path: Path, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write plain arrays behind a JSON header with a `format` and a version, atomically."""
    text = json.dumps({"format": header["format"], "version": VERSION, **header})
    with atomic_file(path) as file:
        np.savez_compressed(file, **{"header": np.array(text), **arrays})  # type: ignore[arg-type]


def read_arrays(
    path: Path | IO[bytes],
    format: str,
    fields: tuple[str, ...],
    make: Callable[[Header, Arrays], T],
    noun: str,
) -> T:
    """Return the object that `make` builds from a file that `write_arrays` wrote.

    Parameters
    ----------
    format
        of the header, "fedcal-" and what the file is
    fields
        what else must be in the header
    noun
        what the file is called in messages

    Raises
    ------
    InputError
        If the file cannot be read, is something else, is of a later version, or holds arrays that
        do not fit together.
    """
    with located(noun + (f" {str(path)!r}" if isinstance(path, Path) else "")):
        arrays = read_npz(path)
        try:
            header: Header = json.loads(str(arrays.pop("header")))
            fields_read = {key: header[key] for key in ("format", "version", *fields)}
            if fields_read["format"] != format:
                raise KeyError(format)
        except (KeyError, TypeError, ValueError, RecursionError):
            raise InputError(f"is not a {format.replace('-', ' ')}") from None
        same("version of the file", fields_read["version"], VERSION)
        try:
            made = make(fields_read, arrays)
            if isinstance(made, Artifact):
                names = header.get("class_names")
                if names is not None:
                    names = class_names(listed("class_names", names, "names"), len(names))
                made.of_classes(names)
            return made
        except (KeyError, TypeError, ValueError) as e:
            problem = f"has no array {e}" if isinstance(e, KeyError) else str(e)
            raise InputError(" ".join(problem.split())) from None


def form_of(path: Path) -> str:
    """Return the form of the artifact in a file, or "" if its header names none."""
    try:
        return str(json.loads(str(read_npz(path)["header"])).get("form", ""))
    except (InputError, KeyError, ValueError, AttributeError):
        return ""
