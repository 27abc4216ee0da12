"""Recalibrate at home: the prior of one release, a site's own rows, a verdict in words.

Post-processing of a release that was charged when it was made, and of rows that stay where they
are: nothing is sent, and nothing is charged.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedcal import calibrators, mechanisms
from fedcal.calibrators.base import score_and_outcome
from fedcal.core import checks, fitting, numerics, pages
from fedcal.core.checks import InputError
from fedcal.core.shards import Shards
from fedcal.datasets.site_csv import AS_IT_IS, Reading
from fedcal.evaluation import page
from fedcal.evaluation.estimators.calibration import logistic, logit
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.evaluation.sites.site_tests import Sites, ranking
from fedcal.metrics import histogram
from fedcal.metrics.score_table import bucket_of, check_score, equal_width
from fedcal.personal import releases
from fedcal.personal.posterior import HARM, SitePrior, identity_prior, site_priors
from fedcal.personal.releases import SitesRelease
from fedcal.results.files import versions
from fedcal.results.page import words
from fedcal.run import folders
from fedcal.sites.rows import read_rows, shards_of
from fedcal.storage.artifact import form_of
from fedcal.storage.atomic import path_of

_NUMBERS = ("log loss", "fall of it", "standard error", "chance of harm")
_COLUMNS = ("prior", "gate", *_NUMBERS)
_BUCKETS = 240


@dataclass(frozen=True, eq=False)
class AtHome:
    """A site's recalibration, for its own eyes.

    `content` is that of `result.json`, `parts` are those of the report, and `calibrator` is
    `Identity` where the gate refuses.
    """

    content: Mapping[str, Any]
    calibrator: calibrators.Calibrator
    parts: Sequence[pages.Part]

    def save(self, out: Path) -> None:
        """Write calibrator, `result.json` and report, for this user alone, into a folder.

        A folder that is made for them is this user's alone, too; one that was there stays as it is.
        """

        def beside(folder: Path) -> None:
            self.calibrator.save(folder / "calibrator.npz")

        folders.AT_HOME.write(out, self.content, self.parts, beside, private=True)


def recalibrate(
    release: str | Path,
    data: str,
    site: str | None = None,
    class_names: Sequence[str] | None = None,
    *,
    reading: Reading = AS_IT_IS,
    most: float = 1.0,
    plural: str = "subjects",
) -> AtHome:
    """Recalibrate a model at one site.

    Parameters
    ----------
    release, data, site
        as `fedcal site recalibrate` has them; rows of one subject count as one. Without a site's
        name its prior is that of a new one
    class_names, reading, most
        as `read_rows` takes them; None = the release's own names
    plural
        word for subjects

    Raises
    ------
    InputError
        If the file holds no counts by site, if the rows cannot be used, or if the classes differ.
    """
    path = path_of(release)
    kind = SitesRelease if form_of(path) == SitesRelease.form else ScoreRelease
    source: Any = kind.read(path.parent, path.name.removesuffix(".npz"))
    asked, known = source.question, source.class_names
    checks.same("score that a prior is learnt from", asked.score, check_score("", asked.classes))
    own_name = site if site and site in asked.group_names else ""
    if not source.known:
        raise InputError(f"{path} contains no counts: no site was asked")
    prior = site_priors(source, [own_name])[own_name]
    rows, notes = read_rows(data, class_names or known, reading, most)
    if rows.classes != asked.classes or (known and rows.class_names != known):
        of = [", ".join(names or ("not named",))[:200] for names in (known, rows.class_names)]
        message = f"{path} is of {asked.classes} classes ({of[0]}), {data} of {rows.classes} "
        raise InputError(f"{message}({of[1]}): they must be the same, in the same order")
    here = Rows(shards_of(rows))
    if reversed_order := here.against_outcomes:
        raise InputError(f"{reversed_order} A calibrator would only hide it; none was made")
    none = identity_prior(asked.classes)
    tried = {}
    for name, one in {"without other sites": none, f"from {prior.sites} sites": prior}.items():
        tried[name], at, after = here.tried(one)
    made = releases.calibrator_of(at.chosen[0], asked.classes, rows.input)
    made.of_classes(rows.class_names)
    sentences = words(
        "at_home",
        harm=HARM,
        most=releases.MOST_RISK,
        own=here.numbers,
        binary=asked.classes == 2,
        who=plural,
        stranger="" if site is None or own_name else repr(site),
        sites=asked.group_names,
        fitted=tried[name],
        alone=tried["without other sites"],
    )
    record = {
        "schema": 1,
        "release": str(path),
        "title": f" at home: {rows.name}",
        "verdict": sentences["verdict"][0],
        "own": here.numbers,
        "statement": [*sentences["statement"], *notes],
        "versions": versions(),
        "site": site,
        "priors": tried,
        "calibrator": made.kind,
    }
    gate = ("refused", "taken")
    lines = [(k, gate[t["taken"]], *(_shown(t[n]) for n in _NUMBERS)) for k, t in tried.items()]
    views = {"before": here.shards.probs, "after, by the calibrator of other rows": after}
    called = {"subjects": f"{plural} with a known outcome", "rows": "rows with a known outcome"}
    facts = tuple((called.get(name, name), _shown(value)) for name, value in here.numbers.items())
    tables = (
        pages.Table("This site's rows", ("", "exact"), facts, sentences["rows"][0]),
        pages.Table("Recalibration here", _COLUMNS, lines, sentences["priors"][0]),
    )
    curve = here.curve(views)
    return AtHome(record, made, tables if curve is None else (*tables, curve))


def _shown(value: float | str | None) -> pages.Entry:
    if value is None or isinstance(value, str):
        return value or "not defined"
    return "< 0.0001" if 0 < value < 5e-5 else round(value, 4) or 0


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of one site, of which those of one subject count as one."""

    shards: Shards

    @cached_property
    def weights(self) -> numerics.Floats:
        """Weight of each row."""
        return self.shards.weights(int(self.shards.subjects is not None))

    @property
    def against_outcomes(self) -> str:
        """Words if scores run against outcomes: an AUC below 1/2 at a level of 97.5 %; or ""."""
        value, outcome = score_and_outcome(self.shards.probs, self.shards.labels)
        _, at = np.unique(value, return_inverse=True)
        each = (1 - outcome, outcome)
        counts = np.array([np.bincount(at, self.weights * is_it, 10) for is_it in each])
        edges, exact = np.linspace(0, 1, counts.shape[1] + 1), np.zeros((counts.shape[1], 0))
        auc, std, p = map(
            float, ranking(Sites.of(counts, edges, exact, mechanisms.NoiseDistribution()))
        )
        if p > 0.025:
            return ""
        return (
            f"Here scores run against outcomes: AUC {auc:.2f} ({max(auc - 1.96 * std, 0):.2f} to "
            f"{auc + 1.96 * std:.2f}): are labels or classes swapped, or is the column another one?"
        )

    def mean(self, values: numerics.Floats) -> tuple[float, float | None]:
        """Weighted mean and its standard error; subjects, not their rows, are independent."""
        mean = float(self.weights @ values / self.weights.sum())
        subjects = np.arange(len(values)) if self.shards.subjects is None else self.shards.subjects
        place = np.unique(subjects, return_inverse=True)[1]
        slack = np.bincount(place, self.weights * (values - mean))
        n, total = len(slack), float(self.weights.sum())
        return mean, math.sqrt(slack @ slack * n / (n - 1)) / total if n > 1 else None

    def losses(self, probs: numerics.Floats) -> numerics.Floats:
        """Return the log loss of each row."""
        return -fitting.label_entries(numerics.logits_from_probs(probs), self.shards.labels)

    @cached_property
    def numbers(self) -> dict[str, Any]:
        """Exact numbers of the rows and of the model as it is."""
        shards, weights = self.shards, self.weights
        value, outcome = score_and_outcome(shards.probs, shards.labels)
        slope = logistic(logit(value), weights, weights * outcome)
        gap, error = self.mean(value - outcome)
        score = self.mean(value)[0]
        own: dict[str, Any] = {"rows": len(value)}
        if shards.subjects is not None:
            own["subjects"] = len(np.unique(shards.subjects))
        events = (
            int(outcome.sum()) if shards.subjects is None else round(float(weights @ outcome), 1)
        )
        own["events" if shards.classes == 2 else "correct predictions"] = events
        own |= {"mean score": score, "rate of the outcome": score - gap, "score minus outcome": gap}
        own |= {"its standard error": error, "log loss": self.mean(self.losses(shards.probs))[0]}
        return own | {"calibration slope": None if slope is None else float(slope[1])}

    def tried(self, prior: SitePrior) -> tuple[dict[str, Any], releases.AtSite, numerics.Floats]:
        """Fit with a prior: numbers, the fit, each row's probabilities by the other folds' fit."""
        at = releases.recalibrated(self.shards, [prior], self.weights)
        probs = releases.cross_validated(self.shards, [prior], self.weights)
        before, after = (self.losses(p) for p in (self.shards.probs, probs))
        numbers = (self.mean(after)[0], *self.mean(before - after), float(at.risk[0]))
        tried: dict[str, Any] = dict(zip(_NUMBERS, numbers, strict=True))
        tried |= {"taken": bool(at.taken[0]), "parameters": at.parameters[0].tolist()}
        tried |= {"prior mean": prior.mean.tolist(), "prior cov": prior.cov.tolist()}
        return tried, at, probs

    def curve(self, views: Mapping[str, numerics.Floats]) -> pages.Part | None:
        """Return the reliability curve of probabilities by name, if there is one."""
        score, edges, counted = check_score("", self.shards.classes), equal_width(_BUCKETS), {}
        for view, probs in views.items():
            value, outcome = score_and_outcome(probs, self.shards.labels)
            cell = outcome.astype(np.int64) * _BUCKETS + bucket_of(value, edges)
            counts = np.bincount(cell, self.weights, 2 * _BUCKETS).reshape(2, _BUCKETS)
            counted[view] = histogram.Histogram.exact(edges, counts.astype(np.float64))
        return page.reliability_part("Reliability", counted, score, 0.95)
