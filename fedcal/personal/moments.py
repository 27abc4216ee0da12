"""A prior for any site from moments of the sites' own recalibrations, where whole sites hide."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedcal.core.errors import InputError
from fedcal.core.pages import Part, Table
from fedcal.core.types import Floats
from fedcal.personal.judged import JudgedAtHome
from fedcal.personal.prior import SitePrior, identity_prior

HIDES = 0.5
"""Noise std of a moment, in units of the identity prior, from which on nothing is read of it."""


def prior_from_moments(moments: Floats, std: float, clients: float, classes: int) -> SitePrior:
    """Read a prior from noisy means over sites; the identity prior where noise hides them.

    One step of expectation-maximisation from the identity prior N(0, s^2): with each site's best
    value m and variance v, the prior's mean is that of m, and its variance that of v + m^2 less
    the square of the mean (Dempster, Laird & Rubin 1977; the allowances for noise are ours). In
    units of s, with noise of std t on each moment: the mean is shrunk by 1 / (1 + t^2), as one that
    is N(0, 1) beforehand; the variance, not below 0, is widened by t, the std of its own noise, by
    t^2 / (1 + t^2), what is left unknown of the mean, and by 1 / clients of itself, for the choice
    of sites. The first step from a wide prior overstates how much sites of few rows differ, which
    is on the safe side.

    Parameters
    ----------
    moments
        (2 d,) means of m / s, then of (v + m^2) / s^2 - 1
    std, clients
        of the noise of each; sites that they are means over
    classes
        of the model
    """
    none = identity_prior(classes)
    if std > HIDES:
        return none
    first, second = moments.reshape(2, -1)
    shrunk, unit = 1.0 / (1.0 + std**2), np.sqrt(np.diag(none.cov))
    mean = shrunk * first
    variance = (np.maximum(second + 1.0 - mean**2, 0.0) + std) * (1.0 + 1.0 / clients)
    return SitePrior(
        unit * mean, np.diag(unit**2 * (variance + shrunk * std**2)), max(round(clients), 1)
    )


@dataclass(frozen=True, eq=False)
class MomentsPrior(JudgedAtHome):
    """Noisy moments of the sites' own recalibrations (`fedcal.queries.SiteEffects`).

    Attributes
    ----------
    moments, std, clients, classes
        see `prior_from_moments`; an infinite std = nothing was released
    unit, privacy
        of the guarantee; what was promised, in sentences
    """

    form = "prior-moments"

    moments: Floats
    std: float
    clients: float
    classes: int
    unit: str = ""
    privacy: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        numbers = 2 * len(identity_prior(self.classes).mean)
        if self.moments.shape != (numbers,) or not np.isfinite(self.moments).all():
            raise InputError(f"{self.classes} classes have {numbers} finite moments")
        if not (self.std >= 0 and 0 < self.clients < np.inf):
            raise InputError("noise must not be negative, and clients must be above 0")

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Moments, and the rest as text."""
        told = ("std", "clients", "classes", "unit", "privacy")
        plain = json.dumps({name: getattr(self, name) for name in told})
        return {"moments": self.moments, "told": np.array(plain)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """What `arrays` gave."""
        told = json.loads(str(arrays["told"]))
        told["privacy"] = tuple(map(str, told["privacy"]))
        return cls(np.array(arrays["moments"], np.float64), **told)

    def under(self, statement: Sequence[str]) -> MomentsPrior:
        """With the statement, which its file then holds."""
        return replace(self, privacy=tuple(statement))

    def priors(self) -> dict[str, SitePrior]:
        """Under "" the prior of any site: its own part in it is hidden."""
        return {"": prior_from_moments(self.moments, self.std, self.clients, self.classes)}

    def results(self) -> dict[str, Any]:
        """The prior: `mean` and `sd` of each parameter; whether noise has `hidden` the sites."""
        prior = self.priors()[""]
        found = {"mean": prior.mean.tolist(), "sd": np.sqrt(np.diag(prior.cov)).tolist()}
        return {"prior": {**found, "hidden": prior.sites == 0}}

    def page(self) -> list[Part]:
        """The prior, and what hides it."""
        prior = self.results()["prior"]
        note = f"Learnt from {self.clients:,.0f} sites, none of which can be told from it."
        if prior["hidden"]:
            note = "Noise hides how sites differ: this is the identity prior, learnt from none."
        names = ("offset", "log of the slope")[-len(prior["mean"]) :]
        rows = tuple(zip(names, prior["mean"], prior["sd"], strict=True))
        return [Table("Prior of a recalibration at home", ("parameter", "mean", "std"), rows, note)]
