"""A prior for any site from moments of the sites' recalibrations, with site-level privacy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedcal.core.errors import InputError
from fedcal.core.pages import Part, Table
from fedcal.core.types import Floats, override
from fedcal.personal.judged import JudgedAtHome
from fedcal.personal.prior import SitePrior, identity_prior

_LEAST, _FURTHEST = 0.05, 100.0
"""Std of a prior that no site is exempt from, and what no moment is beyond, in the same units."""

HIDES = 0.5
"""Noise std of a moment, in units of the identity prior, from which on nothing is read of it."""


def prior_from_moments(moments: Floats, std: float, clients: float, classes: int) -> SitePrior:
    """Read a prior from noisy means over sites; the identity prior where noise hides them.

    One step of expectation-maximisation from the identity prior N(0, s^2): with each site's best
    value m and variance v, the prior's mean is that of m, and its variance that of v + m^2 less
    the square of the mean (Dempster, Laird & Rubin 1977; allowances for noise are ours). In units
    of s, with noise of std t: the mean is shrunk by 1 / (1 + t^2), as one that is N(0, 1); the
    variance, not below 0, is widened by t (its own noise), by t^2 / (1 + t^2) (what is not known of
    the mean), and by 1 / clients of itself (the choice of sites). That first step overstates how
    much sites of few rows differ, which is on the safe side.

    Parameters
    ----------
    moments
        (2 d,) means of m / s, then of (v + m^2) / s^2 - 1
    std, clients
        std of the noise of each; number of sites in the means
    classes
        number of classes of the model
    """
    none = identity_prior(classes)
    if std > HIDES:
        return none
    first, second = np.clip(moments, -_FURTHEST, _FURTHEST).reshape(2, -1)
    shrunk, unit = 1.0 / (1.0 + std**2), np.sqrt(np.diag(none.cov))
    mean = shrunk * first
    variance = (np.maximum(second + 1.0 - mean**2, 0.0) + std) * (1.0 + 1.0 / clients)
    cov = np.diag(unit**2 * (variance + shrunk * std**2 + _LEAST**2))
    return SitePrior(unit * mean, cov, max(round(clients), 1))


@dataclass(frozen=True, eq=False)
class MomentsPrior(JudgedAtHome):
    """Noisy moments of the sites' own recalibrations (`fedcal.clients.questions.SiteEffects`).

    Attributes
    ----------
    moments, std, clients, classes
        see `prior_from_moments`; an infinite std = nothing was released
    """

    form = "prior-moments"

    moments: Floats
    std: float
    clients: float
    classes: int

    def __post_init__(self) -> None:
        numbers = 2 * len(identity_prior(self.classes).mean)
        if self.moments.shape != (numbers,) or not np.isfinite(self.moments).all():
            raise InputError(f"{self.classes} classes have {numbers} finite moments")
        if not (self.std >= 0 and 0 < self.clients < np.inf):
            raise InputError("noise must not be negative, and clients must be above 0")

    @override
    def arrays(self) -> dict[str, NDArray[Any]]:
        return {name: np.array(value) for name, value in vars(self).items() if name in _KEPT}

    @classmethod
    @override
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        moments, std, clients, classes = (arrays[name] for name in _KEPT)
        return cls(np.array(moments, np.float64), float(std), float(clients), int(classes))

    def priors(self, only: Sequence[str] | None = None) -> dict[str, SitePrior]:
        """Return one prior, under "", for any site: a site's own part in it is hidden."""
        return {"": prior_from_moments(self.moments, self.std, self.clients, self.classes)}

    def results(self) -> dict[str, Any]:
        """Return the prior: `mean` and `std` of each parameter, and `hidden` (by noise)."""
        prior = self.priors()[""]
        record = {"mean": prior.mean.tolist(), "std": np.sqrt(np.diag(prior.cov)).tolist()}
        return {"prior": {**record, "hidden": prior.sites == 0}}

    def page(self) -> list[Part]:
        """Return the prior as a table."""
        prior, names = self.results()["prior"], ("offset", "log of the slope")
        rows = tuple(zip(names[2 - len(prior["mean"]) :], prior["mean"], prior["std"], strict=True))
        return [Table("Prior of a recalibration at home", ("parameter", "mean", "std"), rows)]


_KEPT = ("moments", "std", "clients", "classes")
