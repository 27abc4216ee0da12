"""Rows by site, score and outcome: each site's prior is read from it without its own cells."""

from __future__ import annotations

from fedcal.evaluation.score_release import ScoreRelease
from fedcal.personal.judged import JudgedAtHome
from fedcal.personal.prior import SitePrior, identity_prior, site_priors


class SitesRelease(JudgedAtHome, ScoreRelease):
    """A `ScoreRelease` whose groups are the sites."""

    form, noun = "prior", "prior"

    def priors(self) -> dict[str, SitePrior]:
        """Prior of each site by its name, and under "" that of one that is not in it."""
        return site_priors(self) if self.known else {"": identity_prior(self.question.classes)}
