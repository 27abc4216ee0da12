"""Exact value of recalibration at home for each site of a simulation.

A prior for any site from moments of the sites' recalibrations, with site-level privacy.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from fedcal.core.checks import interval, positive
from fedcal.core.fields import array
from fedcal.core.numerics import label_entries, logits_from_probs, softmax
from fedcal.core.pages import Part, Table
from fedcal.core.shards import Shards
from fedcal.core.types import Floats, override
from fedcal.evaluation.histogram import divide
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.metrics.buckets import check_score
from fedcal.metrics.gap_change import MOST_CLIENTS
from fedcal.metrics.standard import summary
from fedcal.personal.at_site import applied, cross_validated, recalibrated
from fedcal.personal.posterior import HARM, SitePrior, identity_prior
from fedcal.personal.prior import site_priors
from fedcal.storage.artifact import Artifact, Holdout

MOST_ROWS = 30
"""Sites of the table: those that fared worst."""


class JudgedAtHome(Artifact):
    """Artifact that gives each site a prior, evaluated by its use at the sites of a simulation.

    It is evaluated on test rows of these sites if there are any, else on their own rows out of
    fold: a site's prior does not depend on these. Each subject counts once, if the subjects of rows
    are known.
    """

    noun = "prior"

    @abstractmethod
    def priors(self, only: Sequence[str] | None = None) -> dict[str, SitePrior]:
        """Return the priors by site's name, all or `only` these; "" = that of any other site."""

    def judge(self, test: Holdout) -> dict[str, Any]:
        """Return metrics of test rows `before` and `after`, and each site's result, `personal`.

        That is `sites` (name -> `rows`, `taken`, `risk`, and with test rows `nll_before`,
        `nll_after`, and whether it is `harmed`: worse by more than `HARM` beyond chance, by a
        one-sided t test of its rows at 5 %), how many have `taken` it, `kept` the model and are
        `harmed`, and the kind of rows they are `judged_on`. {} where the sites' rows are missing.
        """
        if test.fit is not None and self not in test.kept:
            test.kept[self] = self._judged(test, test.fit)
        result: dict[str, Any] = test.kept.get(self, {})
        return result

    def _judged(self, test: Holdout, fit: Shards) -> dict[str, Any]:
        priors = self.priors()
        each = [priors.get(name, priors[""]) for name in fit.names]
        weights = None if fit.subjects is None else fit.weights(1)
        home, on = recalibrated(fit, each, weights), "own rows, out of fold"
        if test.owner is not None and test.names == fit.names:
            judged = Shards.from_owner(test.logits, test.labels, test.owner, fit.clients)
            after, on = applied(judged, home.chosen), "test rows of each site"
        else:
            judged, after = fit, cross_validated(fit, each, weights)
        before, labels = softmax(judged.logits), judged.labels
        rows = judged.rows.astype(np.float64)
        each_loss = [-label_entries(logits_from_probs(p), labels) for p in (before, after)]
        losses = [judged.sum_rows(loss) for loss in each_loss]
        rise = each_loss[1] - each_loss[0]
        mean, square = (divide(judged.sum_rows(v), rows, 0.0) for v in (rise, rise**2))
        error = np.sqrt(divide(np.maximum(square - mean**2, 0.0), rows - 1, np.inf))
        harmed = mean - stdtrit(np.maximum(rows - 1, 1), 0.95) * error > HARM
        sites: dict[str, dict[str, Any]] = {}
        for k, name in enumerate(fit.names):
            taken, risk = bool(home.taken[k]), float(home.risk[k])
            sites[name] = {"rows": int(fit.rows[k]), "taken": taken, "risk": risk}
            if rows[k]:
                one, calibrated = (float(loss[k] / rows[k]) for loss in losses)
                own = {"nll_before": one, "nll_after": calibrated, "harmed": bool(harmed[k])}
                sites[name] |= own
        counts = {"taken": int(home.taken.sum()), "kept": int((~home.taken).sum())}
        counts["harmed"] = sum(one.get("harmed", False) for one in sites.values())
        return {
            **{"before": summary(before, labels), "after": summary(after, labels)},
            "score": check_score("", fit.classes),
            "personal": {**counts, "judged_on": on, "sites": dict([*sites.items()][:MOST_CLIENTS])},
        }

    def judged_page(self, test: Holdout) -> list[Part]:
        """Return each site's decision and log loss, largest increase first."""
        personal = self.judge(test).get("personal", {"sites": {}, "judged_on": ""})
        judged = {name: one for name, one in personal["sites"].items() if "nll_after" in one}
        worst = sorted(judged.items(), key=lambda s: s[1]["nll_before"] - s[1]["nll_after"])
        rows = tuple(
            (
                *(name, one["rows"], "recalibrates" if one["taken"] else "keeps the model"),
                f"{100 * one['risk']:.0f}",
                *(f"{one[f'nll_{part}']:.3f}" for part in ("before", "after")),
                "worse" if one["harmed"] else "",
            )
            for name, one in worst[:MOST_ROWS]
        )
        some = f"The {len(rows)} worst of {len(worst)}" if worst[MOST_ROWS:] else "All"
        note = (
            f"{some} sites with evaluation rows, worst first: {personal['judged_on']}. Risk is the "
            f"probability that the log loss rises by more than {HARM:g}; worse = it rose by more "
            "than that beyond chance (a t test of the site's rows at 5 %). Exact numbers of a "
            "simulation, for research only: in a deployment they stay at the site."
        )
        columns = ("site", "rows", "at home", "risk, %", "log loss before", "log loss after", "")
        return [Table("Recalibration at home", columns, rows, note)] if rows else []


class SitesRelease(JudgedAtHome, ScoreRelease):
    """Rows by site, score and outcome: a `ScoreRelease` whose groups are the sites."""

    form, noun = "prior", "prior"

    def priors(self, only: Sequence[str] | None = None) -> dict[str, SitePrior]:
        """Return each site's prior without its own cells; "" = that of a site outside."""
        if not self.known:
            return dict.fromkeys(only or [""], identity_prior(self.question.classes))
        return site_priors(self, only)


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
    """Noisy moments of the sites' own recalibrations (`SiteEffects`, a question to clients).

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
        array("moments", self.moments, (2 * len(identity_prior(self.classes).mean),))
        interval("[0, inf]")("std of the moments", self.std)
        positive("clients", self.clients)

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
