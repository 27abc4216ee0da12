"""Rows by site, score and outcome: each site's prior is read from it without its own cells."""

from __future__ import annotations

from typing import Any

from fedcal.core.pages import Part
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.personal.judged import judged_at_home, sites_table
from fedcal.personal.prior import SitePrior, identity_prior, site_priors
from fedcal.storage.artifact import Holdout


class SitesRelease(ScoreRelease):
    """A `ScoreRelease` whose groups are the sites, judged by what sites do with it at home."""

    form = "prior"
    noun = "prior"

    def priors(self) -> dict[str, SitePrior]:
        """Each site's prior by its name, and under "" that of a site that is not in it."""
        if not self.known:
            return {"": identity_prior(self.question.classes)}
        return site_priors(self)

    def judge(self, test: Holdout) -> dict[str, Any]:
        """See `judged_at_home`."""
        return judged_at_home(self, test, self.priors(), self.question.subject_rows)

    def judged_page(self, test: Holdout) -> list[Part]:
        """What became of each site."""
        return sites_table(self.judge(test))
