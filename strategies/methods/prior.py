"""A prior for each site's own recalibration, from one release (ours)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from fedcal.core.checks import positive, unused
from fedcal.core.shards import numbered
from fedcal.evaluation.weighting import counted_of, subject_rows
from fedcal.mechanisms import MECHANISMS, Laplace
from fedcal.metrics.buckets import check_score
from fedcal.personal.moments import MomentsPrior
from fedcal.personal.prior import edges_of
from fedcal.personal.sites_release import SitesRelease
from fedcal.privacy.curator import Release
from fedcal.privacy.federation import AUTO, Federation
from fedcal.privacy.mechanism_choice import order_of
from fedcal.queries import Query, ScoreCounts, SiteEffects
from fedcal.queries.encodings import Flat, Tree
from fedcal.queries.evaluation import names_text
from fedcal.strategies.base import FederatedStrategy
from fedcal.strategies.method import check_rounds, plan_for
from fedcal.strategies.methods.score_rounds import excluded
from fedcal.units import UNITS

CLIP = 2.0
"""L2 norm of a client's moments, in units of the identity prior: a site whose two parameters are
one standard deviation off, and well known, has 1.4."""

HEIGHT = 4
"""Levels of the tree under Gaussian noise."""


class FedPrior(FederatedStrategy):
    """What the sites' own recalibrations are like, as a prior for each of them.

    Sites recalibrate at home (`fedcal.personal`), on exact rows of their own, and send nothing of
    that. This asks once for what the others can add.

    Privacy: the federation's unit and trust. Public: the federation, the sites' names and all
    parameters.

    * Units `example` and `subject`, and without privacy: rows by site, score (ten buckets) and
      outcome. A row is a 1 in one count, so its bound is 1 and clips nothing; of a subject see
      `rows_per_subject`. Noise of the scores sum(y - p) and sum((y - p) x), x the log-odds, of a
      site at epsilon = 1 and delta = 1e-5:

      ===================  =============  =================  ==============
      mechanism            flat           tree (levels)      prefix
      ===================  =============  =================  ==============
      laplace              4.0, 14.3      4.1, 18.0 (2)      7.5, 38.2
      gaussian             10.5, 37.7     7.2, 33.6 (4)      7.5, 38.2
      ===================  =============  =================  ==============

      So counts are flat under Laplace noise, the default, and a tree of 4 levels under Gaussian.
      Trust models change the number of noises, not their order.
    * Unit `user`, zero-out (replace under `local`): a site *is* the unit, so none is counted by
      itself. Each sends moments of its own recalibration, `SiteEffects`, clipped to `clip`; their
      sum has Gaussian noise, or what the user names.

    Parameters
    ----------
    federation
        public facts and budget; one round
    groups
        names of the sites, as they call themselves; () = `client 00` to `client 99`. Not of unit
        `user` with privacy, whose sites need no names
    rows_per_subject
        of unit `subject`: rows that a subject's rows count as at most (1)
    clip
        norm of a client's moments (2), of unit `user` with privacy
    """

    name, family = "fedprior", "personal"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = ({},)
    fewest_users = 100

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
        if hides_sites(federation):
            why = "a client that is hidden as a whole is not counted by itself"
            unused(why, groups=groups or None, rows_per_subject=rows_per_subject)
            self._query = SiteEffects(federation.classes)
            clips = (CLIP if clip is None else positive("clip", clip),)
            plan = plan_for(federation, self._query, clips, 1, order_of(federation))
        else:
            unused("what is counted needs none", clip=clip)
            self._query = _counts(federation, groups, rows_per_subject)
            plan = plan_for(federation, self._query, (1.0,), 1, prefers=(Laplace,))
        super().__init__(plan, **base)

    def query(self, round_number: int) -> Query:
        """Counts, or moments."""
        return self._query

    def update(self, release: Release) -> None:
        """Keep them."""
        if not self.plan.unanswered(release.std):
            self._seen = release

    def result(self) -> SitesRelease | MomentsPrior:
        """What they are read from."""
        asked, plan, seen = self._query, self.plan, self._seen
        unit = plan.unit if plan.private else ""
        values = np.zeros(sum(asked.lengths())) if seen is None else seen.values
        std = 0.0 if seen is None else float(seen.std.max(initial=0.0))
        if isinstance(asked, SiteEffects):
            clients = plan.sampling_rate * plan.clients
            moments = values / clients, std / clients
            return MomentsPrior(*moments, clients, asked.classes, known=seen is not None, unit=unit)
        return SitesRelease(
            asked,
            asked.decode(values),
            std,
            "double-exponential" if plan.tailed else "normal",
            unit=unit,
            counted=counted_of(asked.subject_rows),
            excluded=excluded(plan),
            exact=not plan.private,
            known=seen is not None,
        )


def hides_sites(federation: Federation) -> bool:
    """Return whether whole clients are hidden, so that no site is counted by itself."""
    return federation.private and UNITS[federation.unit].whole_client


def _counts(
    federation: Federation, groups: Sequence[str], rows_per_subject: int | None
) -> ScoreCounts:
    """Rows by site, score and outcome, in the encoding of the least noise."""
    score, asked = check_score("", federation.classes), federation.mechanism
    laplace = asked == AUTO or MECHANISMS[asked].order == Laplace.order
    tree = federation.private and not laplace
    return ScoreCounts(
        classes=federation.classes,
        edges=edges_of(score),
        score=score,
        encoding=Tree.name if tree else Flat.name,
        height=HEIGHT if tree else 1,
        groups=names_text(groups or numbered(federation.clients)),
        by="site",
        subject_rows=subject_rows(federation.unit, rows_per_subject),
    )
