"""A prior for a new site from moments of the sites' own recalibrations, where whole sites hide."""

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
from fedcal.personal.judged import judged_at_home, sites_table
from fedcal.personal.prior import SitePrior, identity_prior
from fedcal.storage.artifact import Artifact, Holdout

HIDES = 0.5
"""Noise std of a moment, in units of the identity prior, from which on nothing is read of it."""


def prior_from_moments(moments: Floats, std: float, clients: float, classes: int) -> SitePrior:
    """Read a prior from noisy means over sites; the identity prior where noise hides them.

    One step of expectation-maximisation from the identity prior N(0, s^2): with each site's best
    value m and variance v, the prior's mean is that of m, and its variance that of v + m^2 less
    the square of the mean (Dempster, Laird & Rubin 1977; ours: the allowances for noise). In units
    of s, with noise of std t on each moment:

    * the mean is shrunk by 1 / (1 + t^2), as a mean that is N(0, 1) beforehand;
    * the variance, not below 0, is widened by t, one std of its own noise; by what is left unknown
      of the mean, t^2 / (1 + t^2); and by 1 / clients of itself, for the choice of sites.

    The first step from a wide prior overstates how much sites differ that have few rows: on the
    safe side.

    Parameters
    ----------
    moments
        (2 d,) means of m / s, then of (v + m^2) / s^2 - 1
    std
        of the noise of each
    clients
        that they are means over
    classes
        of the model
    """
    none = identity_prior(classes)
    if std > HIDES:
        return none
    first, second = moments.reshape(2, -1)
    shrunk = 1.0 / (1.0 + std**2)
    mean = shrunk * first
    variance = np.maximum(second + 1.0 - mean**2, 0.0) + std
    variance = variance * (1.0 + 1.0 / clients) + shrunk * std**2
    unit = np.sqrt(np.diag(none.cov))
    return SitePrior(unit * mean, np.diag(unit**2 * variance), round(clients))


@dataclass(frozen=True, eq=False)
class MomentsPrior(Artifact):
    """Noisy moments of the sites' own recalibrations (`fedcal.queries.SiteEffects`).

    Attributes
    ----------
    moments, std, clients, classes
        see `prior_from_moments`
    known
        whether anything was released; if not, moments are 0 and mean nothing
    unit
        of privacy
    privacy
        what was promised for it, in sentences
    """

    form = "prior-moments"
    noun = "prior"

    moments: Floats
    std: float
    clients: float
    classes: int
    known: bool = True
    unit: str = ""
    privacy: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        d = len(identity_prior(self.classes).mean)
        if self.moments.shape != (2 * d,) or not np.isfinite(self.moments).all():
            raise InputError(f"{self.classes} classes have {2 * d} finite moments")
        if not (0 <= self.std < np.inf and 0 < self.clients < np.inf):
            raise InputError("noise and number of clients must be finite, and not negative")

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Moments, and the rest as text."""
        told = ("std", "clients", "classes", "known", "unit", "privacy")
        plain = json.dumps({name: getattr(self, name) for name in told})
        return {"moments": self.moments, "told": np.array(plain)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """What `arrays` gave."""
        told = json.loads(str(arrays["told"]))
        privacy = tuple(map(str, told.pop("privacy")))
        return cls(np.array(arrays["moments"], np.float64), **told, privacy=privacy)

    def under(self, statement: Sequence[str]) -> MomentsPrior:
        """With the statement, which its file then holds."""
        return replace(self, privacy=tuple(statement))

    @property
    def hidden(self) -> bool:
        """Whether the noise hides all, so that the prior is the identity's."""
        return not self.known or self.std > HIDES

    def priors(self) -> dict[str, SitePrior]:
        """The prior of any site, under the name ""; its own part in it is hidden."""
        if not self.known:
            return {"": identity_prior(self.classes)}
        return {"": prior_from_moments(self.moments, self.std, self.clients, self.classes)}

    def results(self) -> dict[str, Any]:
        """The prior's mean and standard deviation, and whether noise hides the sites' part."""
        prior = self.priors()[""]
        found = {"mean": prior.mean.tolist(), "sd": np.sqrt(np.diag(prior.cov)).tolist()}
        return {"prior": {**found, "hidden": self.hidden, "noise": self.std}}

    def judge(self, test: Holdout) -> dict[str, Any]:
        """See `judged_at_home`."""
        return judged_at_home(self, test, self.priors())

    def page(self) -> list[Part]:
        """The prior, beside the identity's."""
        prior, none = self.priors()[""], identity_prior(self.classes)
        names = ("offset", "log of the slope")[-len(prior.mean) :]
        rows = tuple(
            (name, *(float(x) for x in line))
            for name, *line in zip(
                names,
                prior.mean,
                np.sqrt(np.diag(prior.cov)),
                np.sqrt(np.diag(none.cov)),
                strict=True,
            )
        )
        note = f"Of {self.clients:,.0f} sites, hidden by noise of {self.std:.2g} identity's std."
        if self.hidden:
            note = "The noise hides how sites differ: this is the identity prior, learnt from none."
        columns = ("parameter", "mean", "std", "identity's std")
        return [Table("Prior of a site's recalibration", columns, rows, note)]

    def judged_page(self, test: Holdout) -> list[Part]:
        """What became of each site."""
        return sites_table(self.judge(test))
