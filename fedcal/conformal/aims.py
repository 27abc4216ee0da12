"""Goals of prediction sets in which rows are weighted by their label.

A row with label y adds hit_y [score <= t] - need_y to a sum, and a threshold is high enough if the
mean of these terms, over new rows, is at least 0. The usual sets have hit = 1, need = 1 - alpha.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import listed
from fedcal.core.errors import InputError
from fedcal.core.types import Floats, Integers

KINDS = ("target", "costs", "among")


@dataclass(frozen=True)
class Aim:
    """Goal in which rows are weighted by their label.

    ==========  ==========================  ================================  ====================
    kind        numbers                     guarantee                         hit_y, need_y
    ==========  ==========================  ================================  ====================
    ``target``  label shares q where        coverage >= 1 - alpha there, if   w_y, (1 - alpha) w_y
                sets are used               only label shares differ (label   with w_y = q_y / p_y
                                            shift)
    ``costs``   c_y in [0, 1] of missing y  mean cost of missed labels at     c_y, c_y - alpha
                                            most alpha
    ``among``   labels                      coverage >= 1 - alpha of rows     [y in it], (1 - alpha)
                                            whose label is one of these       [y in it]
    ==========  ==========================  ================================  ====================

    Sources: label shift Podkopaev & Ramdas 2021 and Plassier et al. 2023 (2306.05131); costs, and
    the false-negative rate, Angelopoulos et al. 2022 (conformal risk control, 2208.02814).

    Attributes
    ----------
    kind
        first column of the table
    numbers
        second column: (classes,), or the labels
    classes
        of the model
    source
        p, (classes,) public label shares of the clients' rows; () = they are counted, or the kind
        does not use them
    """

    kind: str
    numbers: tuple[float, ...]
    classes: int
    source: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.kind == "among":
            if not 1 <= len(set(self.numbers)) == len(self.numbers) <= self.classes:
                raise InputError("among must be a list of different labels")
            if not all(k == int(k) and 0 <= k < self.classes for k in self.numbers):
                raise InputError(f"among must be labels from 0 to {self.classes - 1}")
            return
        if len(self.numbers) != self.classes:
            raise InputError(
                f"{self.kind} must have {self.classes} numbers, one for each label, got "
                f"{len(self.numbers)}"
            )
        if not all(0 <= k <= 1 for k in self.numbers) or not any(self.numbers):
            raise InputError(f"{self.kind} must be numbers in [0, 1], not all 0")
        if self.kind == "target":
            for name, shares in (("target", self.numbers), ("source", self.source)):
                if shares and abs(sum(shares) - 1.0) > 1e-6:
                    raise InputError(f"{name} must be shares that add up to 1, got {sum(shares):g}")
            if self.source and len(self.source) != self.classes:
                raise InputError(f"source must have {self.classes} shares, one for each label")
            pairs = zip(self.numbers, self.source, strict=False)
            if any(q > 0 and p <= 0 for q, p in pairs) or any(p < 0 for p in self.source):
                raise InputError("source must be > 0 for each label with a share > 0 in target")

    @property
    def counted(self) -> bool:
        """Condition that the weights need counts of the clients' labels."""
        return self.kind == "target" and not self.source

    def terms(self, alpha: float) -> tuple[Floats, Floats]:
        """Return hit and need of each label, (classes,) each; see `stratified` if `counted`."""
        hit = np.array(self.numbers, np.float64)
        if self.kind == "costs":
            return hit, hit - alpha
        if self.kind == "among":
            hit = np.isin(np.arange(self.classes), self.numbers).astype(np.float64)
        elif self.source:
            hit = hit / np.where(hit > 0, np.array(self.source), 1.0)
        return hit, (1.0 - alpha) * hit

    def judged(self, missed: NDArray[np.bool_], labels: Integers) -> dict[str, float]:
        """Return the metric of the aim on labelled rows.

        Parameters
        ----------
        missed
            (n,) whether the label is not in the set
        labels
            (n,) labels

        Returns
        -------
        dict of str to float
            "risk" (mean cost), "coverage_among" or "coverage_at_target" (weighted by the target's
            label shares, over labels that occur); empty if no row contributes.
        """
        rows = np.bincount(labels, minlength=self.classes)
        lost = np.bincount(labels, missed, self.classes) / np.maximum(rows, 1)
        if self.kind == "costs":
            return {"risk": float((np.array(self.numbers) * lost) @ rows / len(labels))}
        if self.kind == "among":
            share = rows * np.isin(np.arange(self.classes), self.numbers)
            name = "coverage_among"
        else:
            share, name = np.array(self.numbers) * (rows > 0), "coverage_at_target"
        return {name: float(1.0 - lost @ share / share.sum())} if share.sum() else {}

    def wanted(self, alpha: float) -> tuple[str, str, float]:
        """Return the name of `judged`'s metric, "at least" or "at most", and the bound."""
        if self.kind == "costs":
            return "mean cost of missed labels", "at most", alpha
        if self.kind == "among":
            listed = ", ".join(f"{k:g}" for k in self.numbers)
            return f"coverage of rows labelled {listed}", "at least", 1.0 - alpha
        return "coverage at the target's label shares", "at least", 1.0 - alpha

    def promise(self, alpha: float) -> str:
        """Return the guarantee for a new row, as the beginning of a sentence."""
        if self.kind == "costs":
            return (
                "The mean cost of a new row's label, if it is missing from its set, is at most "
                f"{alpha:.4g}"
            )
        share = f"at least {1 - alpha:.4g}"
        if self.kind == "among":
            listed = ", ".join(f"{k:g}" for k in self.numbers)
            return (
                f"The label of a new row that is one of {listed} is in its set with probability "
                f"{share}"
            )
        return (
            "If labels have the shares of the target, and rows of each label are distributed as "
            f"at the clients, the label of a new row is in its set with probability {share}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values for `of_json`."""
        return {"kind": self.kind, "numbers": list(self.numbers), "source": list(self.source)}

    @classmethod
    def of_json(cls, values: Mapping[str, Any], classes: int) -> Aim:
        """Return the aim of `to_json` values."""
        numbers, source = (tuple(map(float, values[name])) for name in ("numbers", "source"))
        return cls(str(values["kind"]), numbers, classes, source)


def aim_of(classes: int, source: Sequence[float], **lists: Sequence[float]) -> Aim | None:
    """Return the aim of settings, each a list or its JSON text.

    Parameters
    ----------
    classes
        of the model
    source
        label shares of the clients' rows, for `target`
    **lists
        kind -> numbers; empty = another kind or no aim

    Raises
    ------
    InputError
        If there are two aims.
    """
    chosen = {kind: numbers for kind, numbers in lists.items() if len(numbers)}
    if len(chosen) > 1:
        raise InputError(f"{' and '.join(chosen)} cannot be combined: thresholds have one aim")
    if not chosen:
        if len(source):
            raise InputError("source needs target: it holds the label shares of the clients' rows")
        return None
    ((kind, numbers),) = chosen.items()
    if len(source) and kind != "target":
        raise InputError(f"source needs target, not {kind}")
    shares = _numbers("source", source) if len(source) else ()
    return Aim(kind, _numbers(kind, numbers), classes, shares)


def _numbers(name: str, value: Any) -> tuple[float, ...]:
    items = listed(name, value, "numbers")
    for number in items:
        if isinstance(number, bool) or not isinstance(number, Real):
            raise InputError(f"{name} must be a list of numbers, got {value!r:.80}")
    if not np.isfinite(np.array(items, np.float64)).all():
        raise InputError(f"{name} must be finite numbers")
    return tuple(map(float, items))
