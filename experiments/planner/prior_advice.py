"""Plan, from public facts alone, what one release adds at sites that have labels of their own."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from fedcal.core.errors import InputError
from fedcal.core.streams import Purpose, stream
from fedcal.core.types import Floats, override
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.evaluation.sites.effects import effects
from fedcal.experiments.planner.advice import LOOKED_AT, Advice
from fedcal.experiments.planner.candidates import Candidate, Estimate
from fedcal.experiments.planner.facts import PublicFacts
from fedcal.metrics.buckets import bucket_of
from fedcal.personal.prior import common_spread, identity_prior, predictive
from fedcal.strategies import FedPrior

METHOD = FedPrior.name
LEAST = 0.002
"""A fall of log loss below it is not worth asking for."""

_FORMULA = (
    "Expected log loss above the best is 1/2 tr(i (P^-1 + n i)^-1): n own rows, the information i "
    "of each, a prior of covariance P. Sites differ as the method's own prior says."
)
SHOWN = (5, 10, 15, 30, 60, 120)
_MOST_ROWS, _DRAWS, _QUANTILES = 2_000, 4_000, 2_000
_LOG_ODDS = {True: NormalDist(-0.5, 1.6), False: NormalDist(7.0, 3.0)}
"""Public nominal log odds: of class 1 of two, of the largest probability of more (about 0.15 of
information a row)."""


@dataclass(frozen=True, kw_only=True, repr=False)
class PriorAdvice(Advice):
    """Hold what `fedcal plan --method fedprior` says.

    `excess` is the expected log loss above the best at sites of 0, 1, ... own rows, (2, rows):
    with no other site, and with the release.
    """

    excess: Floats

    named = "method"

    @property
    @override
    def heading(self) -> str:
        return f"plan for recalibration at home: {self.facts}"

    @property
    def enough_rows(self) -> int:
        """Own rows from which on the release adds less than `LEAST`."""
        small = self.excess[0, 1:] - self.excess[1, 1:] < LEAST
        return int(small.argmax()) + 1 if small.any() else _MOST_ROWS

    def line(self, estimate: Estimate) -> dict[str, Any]:
        """Return the noise of the release."""
        return {"method": METHOD, "noise_std": estimate.plan.noise_std}

    def _lines(self) -> list[dict[str, Any]]:
        table = [(n, *self.excess[:, n].tolist()) for n in SHOWN]
        return [{"own_rows": n, "alone": a, "with_release": b, "adds": a - b} for n, a, b in table]

    def recommended(self) -> str:
        """Return from how many own rows on the release is not worth its cost."""
        own = f"At sites with {self.enough_rows:,} own rows or more"
        own = "With any number of own rows" if self.enough_rows == 1 else own
        return (
            f"{own} the release adds less than {LEAST:g} log loss: do without it; at {SHOWN[0]} "
            f"rows it adds {max(self._lines()[0]['adds'], 0):.2g}."
        )

    def explanation(self) -> list[str]:
        """Return how the advice was computed."""
        return [LOOKED_AT.format("a nominal law of scores"), _FORMULA]

    @override
    def tried(self) -> dict[str, Any]:
        content = {"method": METHOD, "facts": self.facts.to_json(), "seed": self.seed}
        return content | {"rows": self._lines(), "enough_rows": self.enough_rows}


def advise_prior(facts: PublicFacts, seed: int = 0) -> PriorAdvice:
    """Say from how many own rows on a site need not ask for the release.

    Raises InputError if the method does not go with the facts, or whole sites are hidden.
    """
    start = time.perf_counter()
    candidate = Candidate(METHOD)
    release, plan = candidate.job(facts, 1.0).strategy().result(), candidate.plan(facts)
    if not isinstance(release, ScoreRelease):
        raise InputError(
            "a plan of what the release adds is for the units example and subject, not for user"
        )
    if facts.federation.clients < 2:
        raise InputError("a plan of what other sites add needs clients >= 2, got 1")
    covs, info = _learnt(release, plan.noise_std[0] if plan.noise_std else 0.0, facts, seed)
    n, none = np.arange(_MOST_ROWS + 1.0), identity_prior(facts.federation.classes)
    excess = np.stack([_excess(c, info, n) for c in (none.cov[None], covs)])
    pays, one = (excess[0, 1:] - excess[1, 1:] >= LEAST).any(), Estimate(candidate, plan)
    fields: dict[str, Any] = {"facts": facts, "seed": seed, "excess": excess, "estimates": [one]}
    fields |= {"chosen": one if pays else None, "seconds": time.perf_counter() - start}
    return PriorAdvice(refused=[], enough=None, **fields)


def _learnt(
    release: ScoreRelease, std: float, facts: PublicFacts, seed: int
) -> tuple[Floats, Floats]:
    """Covariances of the prior from drawn federations, (draws, d, d), and a row's information."""
    asked, m, rng = release.question, facts.rows_per_client, stream(seed, Purpose.SHARE)
    law, edges, c = _LOG_ODDS[asked.classes == 2], asked.bucket_edges, asked.classes
    x = np.array([law.inv_cdf((k + 0.5) / _QUANTILES) for k in range(_QUANTILES)])
    p = 1 / (1 + np.exp(-x))
    at = bucket_of(p, edges)
    rows = np.stack([np.bincount(at, w, asked.buckets) for w in (1 - p, p)]) * (m / _QUANTILES)
    common, scale = common_spread(c)
    root = asked.decoder * std
    others = facts.federation.clients - 1  # a site's prior leaves its own rows out
    shape = (max(_DRAWS // others, 20), others)
    alike = np.broadcast_to(np.asarray(rows, np.float64), (*shape, *rows.shape))
    one = effects(alike, edges, root, c, common)
    info, noise = one.information[0, 0], one.noise[0, 0]
    tau = np.abs(rng.standard_normal((shape[0], 1, len(scale)))) * scale
    theta = tau * rng.standard_normal((*shape, len(scale)))
    scores = theta @ info + rng.multivariate_normal(0 * scale, info + noise, shape)
    return predictive(replace(one, scores=scores), c)[1], info / m


def _excess(cov: Floats, info: Floats, n: Floats) -> Floats:
    """Mean of 1/2 tr(i (P^-1 + n i)^-1) over the covariances (draws, d, d), for each n."""
    inverse = np.linalg.inv(np.linalg.inv(cov)[:, None] + n[:, None, None] * info)
    return np.asarray(np.einsum("kl,rnlk->n", info, inverse) / (2 * len(cov)))
