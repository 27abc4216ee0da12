"""Prediction sets: the labels whose conformity score is at most a threshold."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcal.artifact import Artifact
from fedcal.checks import one_of
from fedcal.conformal.conformity import Conformity
from fedcal.conformal.parts import BY
from fedcal.errors import InputError
from fedcal.scores import KINDS, Kind, check_scores, logits_of
from fedcal.types import Floats

ALL_LABELS = 1.0
"""A threshold that every score is below: sets of all labels, which promise nothing."""


@dataclass(frozen=True, eq=False)
class PredictionSets(Artifact):
    """From a model's scores to sets of labels.

    Attributes
    ----------
    conformity
        the score of labels
    thresholds
        (parts,) in [0, 1]; a label is in a row's set if its score is at most the threshold
    classes
        of the model
    alpha
        the share of rows whose label may be missing
    by
        what has a threshold of its own, see `BY`; without, there is one
    names
        of the groups, in the order of the thresholds; rows of any other group get the largest of
        them
    input
        what the clients' rows were, and so what sets are made of
    guarantee
        what is proven of coverage, and what is assumed, in sentences
    privacy
        what was promised for the rows it was made of, in sentences
    """

    form = "sets"
    noun = "thresholds"

    conformity: Conformity
    thresholds: Floats
    classes: int
    alpha: float
    by: str = "none"
    names: tuple[str, ...] = ()
    input: Kind = "logits"
    guarantee: tuple[str, ...] = ()
    privacy: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        one_of("by", self.by, BY)
        thresholds = np.array(self.thresholds, np.float64)
        parts = {"none": 1, "class": self.classes, "group": len(self.names)}[self.by]
        if thresholds.shape != (parts,):
            raise InputError(f"{parts} thresholds are needed, got shape {thresholds.shape}")
        if not ((thresholds >= 0) & (thresholds <= 1)).all():
            raise InputError("thresholds must be in [0, 1]")
        thresholds.setflags(write=False)
        object.__setattr__(self, "thresholds", thresholds)

    # -- sets -----------------------------------------------------------------------------

    def predict_set(
        self, scores: ArrayLike, groups: Sequence[str] | NDArray[Any] | None = None
    ) -> NDArray[np.bool_]:
        """Which labels are in the set of each row, (n, c) -> (n, c).

        Parameters
        ----------
        scores
            what the clients' rows were, as `input` says
        groups
            (n,) names of the rows' groups; needed where groups have thresholds of their own

        Raises
        ------
        InputError
            If scores are not what `input` says, the class count differs, or groups are missing.
        """
        name = f"{self.input} (these sets take {self.input})"
        logits = logits_of(self.input, check_scores(name, self.input, scores, least=0))
        return self.of_logits(logits, groups)

    def of_logits(
        self, logits: Floats, groups: Sequence[str] | NDArray[Any] | None = None
    ) -> NDArray[np.bool_]:
        """`predict_set` of checked logits; of probabilities they are log(max(p, 1e-12))."""
        if logits.shape[1] != self.classes:
            raise InputError(
                f"these sets are for {self.classes} classes, the rows have {logits.shape[1]}"
            )
        return np.asarray(self.conformity.of_all(logits) <= self._limits(len(logits), groups))

    def _limits(self, rows: int, groups: Sequence[str] | NDArray[Any] | None) -> Floats:
        """Thresholds as they broadcast over (n, c)."""
        if self.by == "group":
            if groups is None or len(groups) != rows:
                raise InputError("these sets have a threshold of each group: say the rows' groups")
            place = {name: k for k, name in enumerate(self.names)}
            limits = np.append(self.thresholds, self.thresholds.max())
            of = np.array([place.get(str(g), len(self.names)) for g in groups], np.int64)
            return np.asarray(limits[of][:, None])
        return self.thresholds

    # -- as an artifact -------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Thresholds, and the rest as text."""
        rest = {
            "conformity": asdict(self.conformity),
            "classes": self.classes,
            "alpha": self.alpha,
            "by": self.by,
            "names": self.names,
            "input": self.input,
            "guarantee": self.guarantee,
            "privacy": self.privacy,
        }
        return {"thresholds": self.thresholds, "sets": np.array(json.dumps(rest))}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """What `arrays` gave."""
        rest = json.loads(str(arrays["sets"]))
        rest["conformity"] = Conformity(**rest["conformity"])
        rest["input"] = one_of("input", rest["input"], KINDS)
        for name in ("names", "guarantee", "privacy"):
            rest[name] = tuple(map(str, rest[name]))
        return cls(thresholds=np.array(arrays["thresholds"], np.float64), **rest)

    def learnt_on(self, input: Kind) -> None:
        """What `predict_set` takes from now on."""
        object.__setattr__(self, "input", input)

    def under(self, statement: Sequence[str]) -> PredictionSets:
        """With the statement, which its file then holds."""
        return replace(self, privacy=tuple(statement))
