"""Exact value of recalibration at home for each site of a simulation.

Recalibration at a site by its own rows and a prior, with a gate that may keep the model.

Nothing of this leaves the site, and it costs no privacy: a site may use its own rows for itself.
One function for one site or ten thousand.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from fedcal.calibrators import Calibrator, Identity, TemperatureScaling, VectorScaling
from fedcal.core import fitting, numerics
from fedcal.core.fitting import label_entries
from fedcal.core.numerics import Floats, Integers, Kind, Purpose, logits_from_probs, softmax, stream
from fedcal.core.pages import Part, Table
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.metrics.bootstrap import MOST_CLIENTS
from fedcal.metrics.histogram import divide
from fedcal.metrics.score_table import check_score
from fedcal.metrics.standard import summary
from fedcal.personal import posterior
from fedcal.storage.artifact import Holdout

MOST_ROWS = 30
"""Sites of the table: those that fared worst."""


class SitesRelease(ScoreRelease):
    """Rows by site, score and outcome: a `ScoreRelease` whose groups are the sites.

    It gives each site a prior, evaluated by its use at the sites of a simulation: on test rows of
    these sites if there are any, else on their own rows out of fold, on which a site's prior does
    not depend. Each subject counts once, if the subjects of rows are known.
    """

    form, noun = "prior", "prior"

    def priors(self, only: Sequence[str] | None = None) -> dict[str, posterior.SitePrior]:
        """Return each site's prior without its own cells; "" = that of a site outside."""
        if not self.known:
            return dict.fromkeys(only or [""], posterior.identity_prior(self.question.classes))
        return posterior.site_priors(self, only)

    def judge(self, test: Holdout) -> dict[str, Any]:
        """Return metrics of test rows `before` and `after`, and each site's result, `personal`.

        That is `sites` (name -> `rows`, `taken`, `risk`, and with test rows `nll_before`,
        `nll_after`, and whether it is `harmed`: worse by more than `HARM` beyond chance, by a
        one-sided t test of its rows at 5 %), how many have `taken` it, `kept` the model and are
        `harmed`, and the kind of rows they are `judged_on`. {} where the sites' rows are missing.
        """
        if test.fit is not None and self not in test.kept:
            test.kept[self] = self._evaluated(test, test.fit)
        result: dict[str, Any] = test.kept.get(self, {})
        return result

    def _evaluated(self, test: Holdout, fit: Shards) -> dict[str, Any]:
        priors = self.priors()
        each = [priors.get(name, priors[""]) for name in fit.names]
        weights = None if fit.subjects is None else fit.weights(1)
        home, on = recalibrated(fit, each, weights), "own rows, out of fold"
        if test.owner is not None and test.names == fit.names:
            evaluated = rows_by_owner(test.logits, test.labels, test.owner, fit.clients)
            after, on = applied(evaluated, home.chosen), "test rows of each site"
        else:
            evaluated, after = fit, cross_validated(fit, each, weights)
        before, labels = softmax(evaluated.logits), evaluated.labels
        rows = evaluated.rows.astype(np.float64)
        each_loss = [-label_entries(logits_from_probs(p), labels) for p in (before, after)]
        losses = [evaluated.sum_rows(loss) for loss in each_loss]
        rise = each_loss[1] - each_loss[0]
        mean, square = (divide(evaluated.sum_rows(v), rows, 0.0) for v in (rise, rise**2))
        error = np.sqrt(divide(np.maximum(square - mean**2, 0.0), rows - 1, np.inf))
        harmed = mean - stdtrit(np.maximum(rows - 1, 1), 0.95) * error > posterior.HARM
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

    def evaluation_page(self, test: Holdout) -> list[Part]:
        """Return each site's decision and log loss, largest increase first."""
        personal = self.judge(test).get("personal", {"sites": {}, "judged_on": ""})
        evaluated = {name: one for name, one in personal["sites"].items() if "nll_after" in one}
        worst = sorted(evaluated.items(), key=lambda s: s[1]["nll_before"] - s[1]["nll_after"])
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
            f"probability that the log loss rises by more than {posterior.HARM:g}; worse = it rose "
            "by more than that beyond chance (a t test of the site's rows at 5 %). Exact numbers "
            "of a simulation, for research only: in a deployment they stay at the site."
        )
        columns = ("site", "rows", "at home", "risk, %", "log loss before", "log loss after", "")
        return [Table("Recalibration at home", columns, rows, note)] if rows else []


MOST_RISK = 0.03
"""Probability of harm with which a calibrator is still taken."""

_FOLDS = 5


@dataclass(frozen=True, eq=False)
class AtSite:
    """Recalibration found by each site, (S,) and more.

    Attributes
    ----------
    parameters
        (S, d) evaluated parameters: the largest posterior density, or a part of the way to it, the
        step of `STEPS` with the largest gain among those with acceptable risk (the least, if none)
    step
        (S,) length of that step, in (0, 1]
    risk
        (S,) posterior probability that they lose more than `HARM` against the model, on new rows
        with scores like the site's own; 1 where it has no rows. See `RIGHT`
    taken
        (S,) whether the risk is at most `MOST_RISK` and the gain, the posterior mean of the
        decrease of log loss, above 0; else the site keeps the model
    """

    parameters: Floats
    step: Floats
    risk: Floats
    taken: NDArray[np.bool_]

    @property
    def chosen(self) -> Floats:
        """(S, d) the parameters, 0 (the model as it is) where they are not taken."""
        return np.where(self.taken[:, None], self.parameters, 0.0)


def recalibrated(
    shards: Shards, priors: Sequence[posterior.SitePrior], weights: Floats | None = None
) -> AtSite:
    """Fit each client's parameters to its own rows, by its own prior, and evaluate the risk.

    Parameters
    ----------
    shards
        rows of S clients
    priors
        prior of each client
    weights
        (n,) what each row counts; None = 1. Rows of one person are not independent of each other:
        `Shards.weights(1)` counts each person once
    """
    at, cov, mean, sure = posterior.posterior(shards, priors, weights)
    risk, gain = posterior.OwnRows(shards, weights).risk(at, cov, mean, sure)
    safe = (risk <= MOST_RISK) & (gain > 0)
    best = np.where(
        safe.any(axis=0), np.where(safe, gain, -np.inf).argmax(axis=0), len(posterior.STEPS) - 1
    )
    step = np.array(posterior.STEPS)[best]
    own = best, np.arange(shards.clients)
    return AtSite(step[:, None] * at, step, risk[own], safe[own])


def calibrator_of(parameters: Floats, classes: int, input: Kind) -> Calibrator:
    """Return the calibrator of one site's parameters, (d,); all 0 = the model as it is."""
    made: Calibrator = Identity(classes)
    if parameters.any():
        if classes == 2:
            slope = float(np.exp(parameters[1]))
            made = VectorScaling([slope, slope, 0.0, float(parameters[0])], classes)
        else:
            made = TemperatureScaling(float(np.exp(-parameters[0])), classes)
    made.learnt_on(input)
    return made


def applied(shards: Shards, parameters: Floats) -> Floats:
    """Return each row's probabilities with its client's parameters (S, d), (n, c)."""
    own = parameters[shards.owner]
    if shards.classes == 2:
        p = fitting.sigmoid(own[:, 0] + np.exp(own[:, 1]) * posterior.log_odds(shards))
        return np.stack([1 - p, p], axis=1)
    return np.asarray(numerics.softmax(shards.logits * np.exp(own)))


def cross_validated(
    shards: Shards, priors: Sequence[posterior.SitePrior], weights: Floats | None = None
) -> Floats:
    """Return each row's probabilities by its site's choice without the row's fold, (n, c).

    Rows of one subject are in one fold. Without its fold a site of one row keeps the model.
    """
    each = np.ones(len(shards.labels)) if weights is None else weights
    fold = _folds(shards)
    probs = np.zeros(shards.logits.shape)
    for k in range(_FOLDS):
        out = fold == k
        recalibration = recalibrated(shards, priors, np.where(out, 0.0, each))
        probs[out] = applied(shards, recalibration.chosen)[out]
    return probs


def _folds(shards: Shards) -> Integers:
    """Return the fold of each row, (n,), with nearly equal numbers at every site."""
    rng = stream(0, Purpose.SPLIT, 0, "folds at home")
    subject = np.arange(len(shards.labels)) if shards.subjects is None else shards.subjects
    _, unit = np.unique(np.stack([shards.owner, subject]), axis=1, return_inverse=True)
    unit = unit.reshape(-1)
    firsts = np.unique(unit, return_index=True)[1]
    order = np.lexsort((rng.random(len(firsts)), shards.owner[firsts]))
    place = np.empty(len(firsts), np.int64)
    place[order] = np.arange(len(firsts)) % _FOLDS
    return np.asarray(place[unit])
