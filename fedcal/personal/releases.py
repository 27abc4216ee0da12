"""Exact value of recalibration at home for each site of a simulation."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import stdtrit

from fedcal.core.numerics import label_entries, logits_from_probs, softmax
from fedcal.core.pages import Part, Table
from fedcal.core.shards import Shards
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.metrics.binning import check_score
from fedcal.metrics.gap_change import MOST_CLIENTS
from fedcal.metrics.histogram import divide
from fedcal.metrics.standard import summary
from fedcal.personal.at_site import applied, cross_validated, recalibrated
from fedcal.personal.posterior import HARM, SitePrior, identity_prior
from fedcal.personal.prior import site_priors
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

    def priors(self, only: Sequence[str] | None = None) -> dict[str, SitePrior]:
        """Return each site's prior without its own cells; "" = that of a site outside."""
        if not self.known:
            return dict.fromkeys(only or [""], identity_prior(self.question.classes))
        return site_priors(self, only)

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
