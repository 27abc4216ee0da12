"""Prediction sets: the labels whose conformity score is at most a threshold."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcal.calibrators.conformity import BY, Conformity
from fedcal.conformal.coverage import Basis, Parts, SetEvaluation, evaluate, shortfalls
from fedcal.conformal.page import SetRelease, evaluation_parts, of_release, promise
from fedcal.core.checks import InputError, check_kept, needed, one_of, same
from fedcal.core.naming import called, listed, one_form
from fedcal.core.numerics import KINDS, Floats, Kind, logits_of, override
from fedcal.core.options import array
from fedcal.core.pages import Part
from fedcal.core.scores import check_scores, ids_of
from fedcal.storage.artifact import Artifact, Holdout
from fedcal.storage.atomic import path_of

ALL_LABELS = 1.0
"""Threshold that no score exceeds: sets of all labels, which carry no information."""

OTHERS = "all other groups"
"""Name of the last threshold's part, where groups have their own."""


@dataclass(frozen=True, eq=False, repr=False)
class PredictionSets(Artifact):
    """Rule that maps a model's scores to sets of labels.

    Attributes
    ----------
    conformity
        the score of labels
    thresholds
        (parts,) in [0, 1]; a label is in a row's set if its score is at most the threshold
    classes
        of the model
    alpha
        fraction of rows whose label may be missing
    by
        kind of part that has its own threshold, see `BY`; "none" = one threshold
    names
        of the groups, in the order of the thresholds; the last threshold is for all other groups
    input
        kind of the clients' scores, and so of the scores that sets are computed from
    guarantee
        coverage guarantee and its assumptions, in sentences
    privacy
        privacy statement for the rows behind the thresholds, in sentences
    release
        counts from which `at` computes other thresholds; None = there are none
    basis
        number of rows behind the thresholds; None = unknown
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
    release: SetRelease | None = None
    basis: Basis | None = None

    def __post_init__(self) -> None:
        one_of("by", self.by, BY)
        parts = {"none": 1, "class": self.classes, "group": len(self.names) + 1}[self.by]
        thresholds = array("thresholds", self.thresholds, (parts,), 0, 1)
        object.__setattr__(self, "thresholds", thresholds)

    def __repr__(self) -> str:
        named = ", ".join(f"{name} {t:.4g}" for name, t in [*self.named.items()][:5])
        of = f"score {self.conformity.name}, alpha {self.alpha:g}, {self.classes} classes"
        return f"<sets: {of};\n thresholds of {named}{', ...' * (len(self.thresholds) > 5)}>"

    # -- sets -----------------------------------------------------------------------------

    def predict_set(
        self, scores: ArrayLike, groups: Sequence[str] | NDArray[Any] | None = None
    ) -> NDArray[np.bool_]:
        """Return whether each label is in the set of each row, (n, c) -> (n, c).

        Parameters
        ----------
        scores
            of the kind `input`, like the clients' rows
        groups
            (n,) names of the rows' groups; needed where groups have their own thresholds

        Raises
        ------
        InputError
            If scores are not of the kind `input`, the class count differs, or groups are missing.
        """
        name = f"{self.input} (these sets need {self.input})"
        checked = check_scores(name, self.input, scores, self.class_names or (), least=0)
        logits = logits_of(self.input, checked)
        return self.of_logits(logits, None if groups is None else ids_of("groups", groups))

    def of_logits(
        self, logits: Floats, groups: Sequence[str] | NDArray[Any] | None = None
    ) -> NDArray[np.bool_]:
        """Return `predict_set` of checked logits; for probabilities they are log(max(p, 1e-12))."""
        same("number of classes of scores for these sets", logits.shape[1], self.classes)
        return self.conformity.of_all(logits, self.input) <= self._limits(len(logits), groups)

    def _limits(self, rows: int, groups: Sequence[str] | NDArray[Any] | None) -> Floats:
        """Return the thresholds in a shape that broadcasts over (n, c)."""
        if self.by != "group":
            return self.thresholds
        if groups is None or len(groups) != rows:
            raise InputError("these sets have a threshold for each group: pass the rows' groups")
        place = {one_form(name): k for k, name in enumerate(self.names)}
        own = [place.get(one_form(str(group)), len(self.names)) for group in groups]
        return np.asarray(self.thresholds[own][:, None])

    def at(self, alpha: float) -> PredictionSets:
        """Return sets for another alpha from the same release, which spends no further budget.

        The guarantee holds for each alpha by itself, if it is chosen without looking at the
        released numbers. The privacy statement is that of the release.

        Parameters
        ----------
        alpha
            fraction of rows whose label may be missing

        Raises
        ------
        InputError
            If the run released a threshold and no counts, or alpha is not in (0, 1).
        """
        why = "the run released thresholds for one alpha; quantile 'prefix' releases counts"
        release = needed("a release of counts", self.release, why)
        return self._with(
            thresholds=release.found(alpha),
            alpha=alpha,
            guarantee=of_release(release, alpha, self.by),
            basis=self.basis and replace(self.basis, fewest=None),  # it is for the other alpha
        )

    # -- reports --------------------------------------------------------------------------

    @property
    def named(self) -> dict[str, float]:
        """Name of a part -> its threshold."""
        classes = (called(self.class_names, k) for k in range(self.classes))
        names = {"none": ("all rows",), "class": classes, "group": (*self.names, OTHERS)}[self.by]
        return dict(zip(names, self.thresholds.tolist(), strict=True))

    @property
    def why_all(self) -> dict[str, str]:
        """Name of each part whose threshold admits all labels -> reason, as far as it is known."""
        basis = self.basis
        if basis is None:
            return {}
        named = enumerate(self.named.items())
        return {name: basis.why_all(k) for k, (name, t) in named if t >= ALL_LABELS}

    def results(self) -> dict[str, Any]:
        """Return the released values; coverage is known for test rows only."""
        released = {
            "alpha": self.alpha,
            "score": self.conformity.name,
            "by": self.by,
            "thresholds": self.named,
            "all_labels": bool((self.thresholds >= ALL_LABELS).all()),
            "all_labels_of": [name for name, t in self.named.items() if t >= ALL_LABELS],
            "all_labels_why": self.why_all,
            "guarantee": list(self.guarantee),
        }
        return {"before": None, "after": None, "sets": released}

    def judge(self, test: Holdout) -> dict[str, Any]:
        """Return exact coverage and sizes on test rows: see `fedcal.conformal.coverage.Judged`.

        `before` is the coverage of the most probable label alone.
        """
        result = self.evaluate(test)
        return {
            "before": result.before,
            "after": result.after,
            "coverage_by": result.coverage_by,
            "coverage_warnings": self.warnings(result, test.fit_rows),
        }

    def warnings(self, result: SetEvaluation, fit_rows: int | None = None) -> list[str]:
        """Return warnings of test rows with too little coverage: see `shortfalls`."""
        promised, names = self.promised(result), self.class_names
        size, found = result.after["set_size"], list[str]()
        if self.classes > 2 and size > self.classes / 2:
            found = [f"sets hold {size:.3g} of {self.classes} labels on average and say little"]
        return [*found, *shortfalls(result, self.alpha, promised, self.basis, names, fit_rows)]

    def promised(self, result: SetEvaluation) -> dict[str, Sequence[str]]:
        """Return the parts that have their own thresholds, by the partition of the test rows."""
        if self.by == "class":
            return {"class": [str(k) for k in range(self.classes)]}
        kinds = ("site", "group") if self.by == "group" else ()
        return {k: self.names for k in kinds if set(result.by.get(k, ())) & set(self.names)}

    def glance(self, test: Holdout) -> dict[str, float]:
        """Return coverage and mean set size."""
        after = self.evaluate(test).after
        return {name: after[name] for name in ("coverage", "set_size")}

    def page(self) -> list[Part]:
        """Return the thresholds and their guarantee."""
        return [promise(self)]

    def evaluation_page(self, test: Holdout) -> list[Part]:
        """Return coverage overall and by class, site, group and size; set sizes; examples."""
        return evaluation_parts(self, test)

    def evaluate(self, test: Holdout) -> SetEvaluation:
        """Return the evaluation on test rows; computed once."""
        if self in test.kept:
            known: SetEvaluation = test.kept[self]
            return known
        parts: dict[str, Parts] = {}
        if test.owner is not None:
            parts["site"] = test.owner, test.names
        if test.group is not None:
            parts["group"] = test.group, test.group_names
        groups = [""] * len(test.labels)  # unknown: the threshold of all other groups
        for part, names in parts.values():
            if set(names) & set(self.names):
                groups = [names[k] for k in part.tolist()]
                break
        sets = self.of_logits(test.logits, groups)
        result = evaluate(sets, test.labels, test.probs.argmax(axis=1), parts)
        test.kept[self] = result
        return result

    # -- as an artifact -------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return thresholds as numbers, and the rest as JSON text."""
        own = ("classes", "alpha", "by", "names", "input", "guarantee", "privacy")
        rest = {
            "conformity": asdict(self.conformity),
            **{name: getattr(self, name) for name in own},
            "basis": self.basis and asdict(self.basis),
        }
        counts = {} if self.release is None else self.release.arrays()
        return {"thresholds": self.thresholds, "sets": np.array(json.dumps(rest)), **counts}

    @classmethod
    @override
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        rest = json.loads(str(arrays["sets"]))
        own = rest["conformity"].items()
        # earlier versions had a seed, which was 0, aims of weighted rows, and coverage of groups
        rest["conformity"] = Conformity(**{k: v for k, v in own if (k, v) != ("seed", 0)})
        rest.pop("reported", None)
        if rest.pop("aim", None) is not None:
            check_kept("--set target")
        rest["basis"] = rest.get("basis") and Basis.of_json(rest["basis"])
        rest["release"] = SetRelease.of_arrays(arrays)
        rest["input"] = one_of("input", rest["input"], KINDS)
        for name in ("names", "guarantee", "privacy"):
            rest[name] = tuple(map(str, rest[name]))
        return cls(thresholds=np.array(arrays["thresholds"], np.float64), **rest)

    def learnt_on(self, input: Kind) -> None:
        """Set the kind of scores that `predict_set` accepts."""
        object.__setattr__(self, "input", input)

    def under(self, statement: Sequence[str]) -> PredictionSets:
        """Return the sets with a privacy statement, which is saved in their file."""
        return self._with(privacy=tuple(statement))

    def _with(self, **changed: Any) -> PredictionSets:
        """Return the sets with other values; class names are kept."""
        changed_sets = replace(self, **changed)
        changed_sets.of_classes(self.class_names)
        return changed_sets

    def of_sites(self, sites: Mapping[str, Any]) -> PredictionSets:
        """Return the sets with a guarantee that names the sites that took no part."""
        if not sites["absent"]:
            return self
        some = sites["enrolled"] - len(sites["absent"])
        about = (
            f"The rows are those of {some} of the {sites['enrolled']} enrolled sites: nothing is "
            f"guaranteed for rows of {listed(sites['absent'])}, which took no part."
        )
        return replace(self, guarantee=(*self.guarantee, about))


def load(path: str | Path) -> PredictionSets:
    """Return the prediction sets in a run's `sets.npz`.

    Raises InputError if the file cannot be read, holds something else, has a later version, or
    holds inconsistent values.
    """
    return PredictionSets.load(path_of(path))
