"""A prior for each site's own recalibration, from one release (ours)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from fedcal.clients.questions import ScoreCounts, SiteEffects
from fedcal.core.checks import positive, unused
from fedcal.core.shards import numbered
from fedcal.core.types import override
from fedcal.evaluation.sites.effects import edges_of
from fedcal.evaluation.weighting import counted_of, subject_rows
from fedcal.mechanisms import MECHANISMS, Laplace
from fedcal.metrics.buckets import check_score
from fedcal.metrics.encodings import FLAT, TREE
from fedcal.metrics.score_table import names_text
from fedcal.personal.judged import SitesRelease
from fedcal.personal.moments import MomentsPrior
from fedcal.privacy.curator import Release
from fedcal.privacy.federation import AUTO, Federation, order_of
from fedcal.privacy.query import Order, Query
from fedcal.strategies.base import FederatedStrategy
from fedcal.strategies.method import check_rounds, plan_for
from fedcal.strategies.methods.score_rounds import excluded
from fedcal.units import UNITS

CLIP, HEIGHT, FEWEST = 2.0, 4, 100
"""Norm of a client's moments; levels of a tree; clients that are hidden among each other."""


class FedPrior(FederatedStrategy):
    """Prior for each site's own recalibration, from one private release about all sites.

    Sites recalibrate at home (`fedcal.personal`) and send nothing of that; this asks once for what
    the others can add. Public: the federation, the sites' names, all parameters.

    * Units `example` and `subject`, and without privacy: rows by site, score (ten buckets) and
      outcome; a row is a 1 in one count, which clips nothing. Noise of a site's sum(y - p), and of
      its sum((y - p) x), x the log-odds, at epsilon = 1: Laplace 4.0 and 14.3 on flat counts, 4.1
      and 18.0 on a tree; Gaussian (delta 1e-5) 10.5 and 37.7 on flat ones, 7.2 and 33.6 on a tree
      of 4 levels: flat under Laplace noise, the default, else such a tree.
    * Unit `user`, zero-out (replace under `local`): a site *is* the unit. Each sends moments
      (`SiteEffects`), clipped in the norm of the noise, which is Gaussian by default.

    Parameters
    ----------
    federation
        public facts and budget; one round
    groups
        names of the sites; () = `client 00` to `client 99`. Not where whole clients are hidden
    rows_per_subject
        of unit `subject`: rows that a subject's rows count as at most (1)
    clip
        of moments, where whole clients are hidden (2: of two parameters that are surely off by one
        unit of the identity prior it is 1.4)
    """

    name, family = "fedprior", "personal"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = ({},)
    fewest_users = FEWEST

    def __init__(
        self,
        federation: Federation,
        *,
        groups: Sequence[str] = (),
        rows_per_subject: int | None = None,
        clip: float | None = None,
        **base: Any,
    ) -> None:
        check_rounds(self.name, federation, 1)
        self._seen: Release | None = None
        self._query: ScoreCounts | SiteEffects
        if federation.private and UNITS[federation.unit].whole_client:
            why = "a client that is protected as a whole is not counted separately"
            unused(why, groups=groups or None, rows_per_subject=rows_per_subject)
            self._query = SiteEffects(federation.classes)
            clip = CLIP if clip is None else positive("clip", clip)
            plan = plan_for(federation, self._query, (clip,), 1, order_of(federation))
        else:
            unused("counting needs none", clip=clip)
            self._query = _counts(federation, groups, rows_per_subject)
            order: Order = 1 if federation.mechanism == AUTO else order_of(federation)
            plan = plan_for(federation, self._query, (1.0,), 1, order, prefers=(Laplace,))
        super().__init__(plan, **base)

    @override
    def query(self, round_number: int) -> Query:
        return self._query

    @override
    def update(self, release: Release) -> None:
        if not self.plan.unanswered(release.std):
            self._seen = release

    def result(self) -> SitesRelease | MomentsPrior:
        """Return the release, or the moments, from which each site reads its prior."""
        asked, plan, seen = self._query, self.plan, self._seen
        values = np.zeros(sum(asked.lengths())) if seen is None else seen.values
        std = 0.0 if seen is None else float(seen.std.max(initial=0.0))
        if isinstance(asked, SiteEffects):
            clients = plan.sampling_rate * plan.clients
            noise = math.inf if seen is None else std / clients
            return MomentsPrior(values / clients, noise, clients, asked.classes)
        return SitesRelease(
            *(asked, asked.decode(values), std, plan.noise_law(std)),
            unit=plan.unit if plan.private else "",
            counted=counted_of(asked.subject_rows),
            excluded=excluded(plan),
            exact=not plan.private,
            known=seen is not None,
        )


def _counts(of: Federation, groups: Sequence[str], subject: int | None) -> ScoreCounts:
    """Rows by site, score and outcome, in the encoding of the least noise."""
    score, asked = check_score("", of.classes), of.mechanism
    tree = of.private and asked != AUTO and MECHANISMS[asked].order != Laplace.order
    return ScoreCounts(
        *(of.classes, edges_of(score), score, *((TREE, HEIGHT) if tree else (FLAT, 1))),
        groups=names_text(groups or numbered(of.clients)),
        by="site",
        subject_rows=subject_rows(of.unit, subject),
    )
