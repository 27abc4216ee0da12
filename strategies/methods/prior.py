"""A prior for each site's own recalibration, from one release (ours)."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from fedcal.clients.questions import scores
from fedcal.core.checks import InputError
from fedcal.core.numerics import override
from fedcal.core.options import Count
from fedcal.evaluation.findings import counted_of, subject_rows
from fedcal.evaluation.sites.buckets import edges_of
from fedcal.mechanisms import MECHANISMS, Laplace
from fedcal.metrics.score_table import check_score, names_text
from fedcal.partition import numbered
from fedcal.personal.releases import SitesRelease
from fedcal.privacy import Plan, Query, Release
from fedcal.strategies.base import FederatedStrategy, Names
from fedcal.strategies.methods.counting import excluded


class FedPrior(FederatedStrategy):
    """Prior for each site's own recalibration, from one private release about all sites.

    Sites recalibrate at home (`fedcal.personal`) and send nothing of that; this asks once for what
    the others can add: rows by site, score (ten buckets) and outcome. A row is a 1 in one count,
    which clips nothing. Public: the federation, the sites' names, all parameters. Unit `user` is
    refused: it hides the very sites that are counted.

    Noise of a site's sum(y - p), and of its sum((y - p) x), x the log-odds, at epsilon = 1: Laplace
    4.0 and 14.3, the default; Gaussian (delta 1e-5) 10.5 and 37.7.

    Parameters
    ----------
    federation
        public facts and budget; one round
    groups
        names of the sites; () = `client 00` to `client 99`
    rows_per_subject
        of unit `subject`: rows that a subject's rows count as at most (1)
    """

    name, family = "fedprior", "personal"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = ({},)

    groups: Names = ()
    rows_per_subject: Count | None = None

    def prepare(self) -> Plan:
        """Return the plan of the one round."""
        f = self.federation
        self.check_rounds(1)
        self._seen: Release | None = None
        if self.hides_clients:
            why = "a client that is protected as a whole is not counted by itself"
            raise InputError(f"{self.name}: {why}; use unit 'example' or 'subject'")
        score = check_score("", self.classes)
        self._query = scores.ScoreCounts(
            *(self.classes, edges_of(score), score),
            groups=names_text(self.groups or numbered(f.clients)),
            by="site",
            subject_rows=subject_rows(f.unit, self.rows_per_subject),
        )
        order = MECHANISMS.get(f.mechanism, Laplace).order
        return self.plan_for(self._query, (1.0,), 1, order, prefers=(Laplace,))

    @override
    def query(self, round_number: int) -> Query:
        return self._query

    @override
    def update(self, release: Release) -> None:
        if not self.plan.unanswered(release.std):
            self._seen = release

    def result(self) -> SitesRelease:
        """Return the release from which each site reads its prior."""
        asked, plan, seen = self._query, self.plan, self._seen
        values = np.zeros(sum(asked.lengths())) if seen is None else seen.values
        std = 0.0 if seen is None else float(seen.std.max(initial=0.0))
        return SitesRelease(
            *(asked, asked.decode(values), std, plan.noise_distribution(std)),
            unit=plan.unit if plan.private else "",
            counted=counted_of(asked.subject_rows),
            excluded=excluded(plan),
            exact=not plan.private,
            known=seen is not None,
        )
