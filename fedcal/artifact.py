"""What a run yields: a calibrator, metrics, prediction sets, a model.

Engines, result files and reports ask an artifact what it holds and how to show it; none of them
knows its class.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fedcal.atomic import whole_file
from fedcal.errors import InputError
from fedcal.npz import read_npz
from fedcal.pages import Curve, Table
from fedcal.scores import Kind
from fedcal.types import Floats, Integers

FORMAT = "fedcal-artifact"
VERSION = 1


@dataclass(frozen=True, eq=False)
class Holdout:
    """Test rows that an artifact is judged on, for the researcher's eyes: no private release.

    Attributes
    ----------
    logits : (n, c); of probabilities log(max(p, 1e-12))
    probs : (n, c) of the model itself
    labels : (n,)
    seed : of what is drawn to judge (a bootstrap)
    kept : what an artifact computed of these rows and needs again, by a key of its own
    """

    logits: Floats
    probs: Floats
    labels: Integers
    seed: int = 0
    kept: dict[Any, Any] = field(default_factory=dict, repr=False)


class Artifact(ABC):
    """What a run yields. Only `arrays` and `from_arrays` must be written.

    A subclass that sets `form` is found by it in `ARTIFACTS` from then on.

    Attributes
    ----------
    form : what it is, and the name of its file in a result folder (`calibrator` of all
        calibrators, whatever their own kind)
    noun : what sentences about a run call it
    """

    form: ClassVar[str]
    noun: ClassVar[str] = "result"

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
        """The artifact of these arrays; KeyError or InputError if they do not fit."""

    # -- files ----------------------------------------------------------------------------

    @classmethod
    def files(cls) -> tuple[str, ...]:
        """Names of all that `write` may leave in a result folder."""
        return (f"{cls.form}.npz",)

    def write(self, folder: Path, stem: str, test: Holdout | None = None) -> list[str]:
        """Write its files into an existing folder; `read` reads them.

        Parameters
        ----------
        stem : what the file is called, without its suffix
        test : with it also what is worth keeping of the test rows

        Returns
        -------
        the names of the files
        """
        header = {"format": FORMAT, "version": VERSION, "form": self.form}
        arrays: dict[str, Any] = {"header": np.array(json.dumps(header)), **self.arrays()}
        with whole_file(folder / f"{stem}.npz") as file:
            np.savez_compressed(file, **arrays)
        return [f"{stem}.npz"]

    @classmethod
    def read(cls, folder: Path, stem: str) -> Artifact:
        """What `write` wrote.

        Raises
        ------
        InputError
            If the file cannot be read, or holds something else.
        """
        path = folder / f"{stem}.npz"
        try:
            return cls._of_file(read_npz(path))
        except InputError as e:
            raise InputError(f"{cls.form} {str(path)!r}: {e}") from None

    @classmethod
    def _of_file(cls, arrays: dict[str, NDArray[Any]]) -> Artifact:
        try:
            header = json.loads(str(arrays.pop("header")))
            told = header["format"], header["form"]
            version = header["version"]
        except (KeyError, TypeError, ValueError):
            raise InputError("is no fedcal artifact") from None
        if told != (FORMAT, cls.form):
            raise InputError(f"is no artifact of the form {cls.form!r}")
        if version != VERSION:
            raise InputError(f"has version {version!r}; this fedcal reads version {VERSION}")
        try:
            return cls.from_arrays(arrays)
        except KeyError as e:
            raise InputError(f"has no array {e}") from None
        except (TypeError, ValueError) as e:
            raise InputError(" ".join(str(e).split())) from None

    # -- what is told of it ---------------------------------------------------------------

    def learnt_on(self, input: Kind) -> None:  # noqa: B027  few need to know
        """Hear what the clients' rows were: logits or probabilities."""

    def record(self) -> dict[str, Any]:
        """What a release's line of `rounds.jsonl` gains: plain values."""
        return {}

    def judge(self, test: Holdout) -> dict[str, Any]:
        """The keys that `result.json` gains: plain finite values, told by no other key there."""
        return {}

    def intervals(self, test: Holdout) -> dict[str, Any]:
        """Further such keys that take long; asked for only where they are shown or written."""
        return {}

    def glance(self, test: Holdout) -> dict[str, float]:
        """A few numbers on test rows: the key `test` of lines of `rounds.jsonl`; {} = none."""
        return {}

    def page(self) -> list[Table | Curve]:
        """Its part of a report, from top to bottom."""
        return []


ARTIFACTS: dict[str, type[Artifact]] = {}
"""Form -> class, which reads what it wrote."""
