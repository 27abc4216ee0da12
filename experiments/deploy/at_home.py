"""Recalibrate at home: the prior of one release, a site's own rows, a verdict in words.

Post-processing of a release that was charged when it was made, and of rows that stay where they
are: nothing is sent, and nothing is charged.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from fedcal import calibrators, mechanisms
from fedcal.core import checks, naming, numerics, pages
from fedcal.core.checks import InputError
from fedcal.core.shards import Shards
from fedcal.datasets.site_csv import AS_IT_IS, Reading
from fedcal.evaluation import histogram, page, score_release
from fedcal.evaluation.estimators.calibration import logistic, logit
from fedcal.evaluation.sites import effects
from fedcal.evaluation.sites.site_tests import Sites, ranking
from fedcal.experiments.deploy.rows import read_rows, shards_of
from fedcal.experiments.report.page import words
from fedcal.experiments.runs import folders, result
from fedcal.metrics.binning import bucket_of, check_score, equal_width, score_and_outcome
from fedcal.personal import at_site
from fedcal.personal.posterior import SitePrior, identity_prior
from fedcal.personal.prior import site_priors
from fedcal.storage.artifact import ARTIFACTS, form_of
from fedcal.storage.atomic import path_of

_NUMBERS = ("log loss", "fall of it", "standard error", "chance of harm")
_BUCKETS = 240
_CLOSE, _OFF = 0.9, 0.3  # of the identity prior's spread: the release has hardly moved it


@dataclass(frozen=True, eq=False)
class AtHome:
    """A site's recalibration, for its own eyes.

    `told` is the content of `result.json`, `parts` are those of the report, and `calibrator` is
    `Identity` where the gate refuses, None where there is no release yet.
    """

    told: Mapping[str, Any]
    calibrator: calibrators.Calibrator | None
    parts: Sequence[pages.Part]

    def save(self, out: Path) -> None:
        """Write calibrator, `result.json` and report, for this user alone, into a folder.

        A folder that is made for them is this user's alone, too; one that was there stays as it is.
        """

        def beside(folder: Path) -> None:
            if self.calibrator is not None:
                self.calibrator.save(folder / "calibrator.npz")

        folders.AT_HOME.write(out, self.told, self.parts, beside, private=True)


def recalibrate(
    release: str | Path,
    data: str,
    site: str | None = None,
    class_names: Sequence[str] | None = None,
    positive: str | None = None,
    *,
    reading: Reading = AS_IT_IS,
    most: float = 1.0,
    who: str = "subjects",
) -> AtHome:
    """Recalibrate a model at one site.

    Parameters
    ----------
    release, data, site, class_names, positive
        as `fedcal site recalibrate` has them; rows of one subject count as one. Without a site's
        name its prior is that of a new one
    reading, most
        as `read_rows` takes them
    who
        word for subjects

    Raises
    ------
    InputError
        If the file holds no counts by site or moments of sites, if the rows cannot be used, or if
        the classes differ.
    """
    if Path(release).is_dir():
        raise InputError(
            f"release {str(release)!r} is a folder: name prior.npz or release.npz in it"
        )
    path, name = path_of(release), path_of(release).name.removesuffix(".npz")
    source: Any = ARTIFACTS.get(form_of(path), score_release.ScoreRelease).read(path.parent, name)
    sites = source.question.group_names if isinstance(source, score_release.ScoreRelease) else ()
    site = None if site is None else naming.plain_name("--site", site)
    own_name, known = site if site in sites else "", source.class_names
    prior = priors_of(source, [own_name])[own_name]
    classes = getattr(source, "question", source).classes
    rows, notes = read_rows(data, class_names or known, reading, most)
    rows = rows.in_order(None, positive)
    if rows.classes != classes or (known and rows.class_names != known):
        of = [", ".join(names or ("not named",))[:200] for names in (known, rows.class_names)]
        message = f"{path} is of {classes} classes ({of[0]}), {data} of {rows.classes} ({of[1]})"
        raise InputError(f"{message}: they must be the same, in the same order")
    stranger = "" if site is None or own_name else repr(site)
    alike = get_close_matches(site, sites, 1) if site and stranger else []
    none = identity_prior(classes)
    spread, wide = (np.sqrt(np.diag(one.cov)) for one in (prior, none))
    no_news = bool((spread > _CLOSE * wide).all() and (np.abs(prior.mean) < _OFF * wide).all())
    expected = None if own_name else source.results().get("next_site")
    shards = shards_of(rows)
    weights = _weights(shards)
    if reversed_order := against_outcomes(shards):
        raise InputError(f"{reversed_order} A calibrator would only hide it; none was made")
    own, tried = _own(shards, weights), {}
    for name, one in {"without other sites": none, f"from {prior.sites} sites": prior}.items():
        tried[name], at, after = _tried(shards, one, weights)
    made = at_site.calibrator_of(at.chosen[0], classes, rows.input)
    made.of_classes(rows.class_names)
    record, told = _told(
        str(path),
        f" at home: {rows.name}",
        own,
        classes,
        notes,
        who=who,
        stranger=stranger,
        named=bool(sites),  # of unit user none has a name
        meant="".join(map(repr, alike)),
        no_news=no_news,
        next_site=effects.next_site_sentence(expected) if expected else "",
        fitted=tried[name],
        alone=tried["without other sites"],
    )
    if stranger and sites:
        warnings.warn(told["statement"][1], stacklevel=2)
    record |= {"site": site, "priors": tried, "calibrator": made.kind}
    gate = ("refused", "taken")
    lines = [(k, gate[t["taken"]], *(_shown(t[n]) for n in _NUMBERS)) for k, t in tried.items()]
    views = {"before": shards.probs, "after, by the calibrator of other rows": after}
    facts, *curve = _own_parts(own, shards, weights, views, who, *told["rows"])
    heads, (note,) = ("prior", "gate", *_NUMBERS), told["priors"]
    table = pages.Table("Recalibration here", heads, tuple(lines), note)
    return AtHome(record, made, (facts, table, *curve))


def as_it_is(
    shards: Shards, name: str, title: str, advice: Sequence[str], who: str = "subjects"
) -> AtHome:
    """Exact numbers of a site's rows and of the model as it is, before there is a release.

    Parameters
    ----------
    shards
        of one client; rows of one subject count as one
    name, title
        of the rows, and what follows it in the report's title
    advice
        sentences on what to do next, and on the rows
    who
        word for subjects
    """
    weights = _weights(shards)
    own = _own(shards, weights)
    numbers = dict(own)
    if (error := own["its standard error"]) is not None:
        low, high = (100 * (own["score minus outcome"] + z * error) for z in (-1.96, 1.96))
        numbers["its standard error"] = f"{error:.4f}: {low:.1f} to {high:.1f} points (95 %)"
    record, told = _told(name, title, own, shards.classes, advice, who=who, as_it_is=True)
    record["verdict"] = against_outcomes(shards) or record["verdict"]
    views = {"model": shards.probs}
    return AtHome(record, None, _own_parts(numbers, shards, weights, views, who, *told["rows"]))


def _weights(shards: Shards) -> numerics.Floats:
    return np.ones(len(shards.labels)) if shards.subjects is None else shards.weights(1)


def _told(
    release: str,
    title: str,
    own: Mapping[str, Any],
    classes: int,
    notes: Sequence[str],
    **facts: Any,
) -> tuple[dict[str, Any], dict[str, tuple[str, ...]]]:
    """Return what every `result.json` of this kind holds, and sentences by name."""
    limits = {"harm": at_site.HARM, "most": at_site.MOST_RISK}
    told = words("at_home", own=own, binary=classes == 2, **limits, **facts)
    record = {"schema": 1, "release": release, "title": title, "verdict": told["verdict"][0]}
    record |= {"own": own, "statement": [*told["statement"], *notes]}
    record["versions"] = result.versions()
    return record, told


def _shown(value: float | str | None) -> pages.Entry:
    if value is None or isinstance(value, str):
        return value or "not defined"
    return "< 0.0001" if 0 < value < 5e-5 else round(value, 4) or 0


def _own_parts(
    own: Mapping[str, Any],
    shards: Shards,
    weights: numerics.Floats,
    views: Mapping[str, numerics.Floats],
    who: str,
    note: str,
) -> tuple[pages.Part, ...]:
    """Return a table of the exact numbers and, if there is one, the reliability curve."""
    counted = {view: _counted(shards, probs, weights) for view, probs in views.items()}
    curve = page.reliability_part("Reliability", counted, check_score("", shards.classes), 0.95)
    named = {"subjects": f"{who} with a known outcome", "rows": "rows with a known outcome"}
    facts = tuple((named.get(name, name), _shown(value)) for name, value in own.items())
    table = pages.Table("This site's rows", ("", "exact"), facts, note)
    return (table,) if curve is None else (table, curve)


def priors_of(release: Any, only: Sequence[str] | None = None) -> dict[str, SitePrior]:
    """Return the prior of each site of a release; "" = of a new one. InputError without any.

    With `only` those of these names are computed: each is a fit to all other sites.
    """
    if hasattr(release, "priors"):
        return dict(release.priors(only))
    if not isinstance(release, score_release.ScoreRelease):
        raise InputError(f"a prior is learnt from a release of sites, not from a {release.noun}")
    asked = release.question
    checks.same("score that a prior is learnt from", asked.score, check_score("", asked.classes))
    return site_priors(release, only)


def _losses(shards: Shards, probs: numerics.Floats) -> numerics.Floats:
    return -numerics.label_entries(numerics.logits_from_probs(probs), shards.labels)


def _mean(
    shards: Shards, values: numerics.Floats, weights: numerics.Floats
) -> tuple[float, float | None]:
    """Weighted mean and its standard error; subjects, not their rows, are independent."""
    mean = float(weights @ values / weights.sum())
    who = np.arange(len(values)) if shards.subjects is None else shards.subjects
    slack = np.bincount(np.unique(who, return_inverse=True)[1], weights * (values - mean))
    n = len(slack)
    return mean, math.sqrt(slack @ slack * n / (n - 1)) / float(weights.sum()) if n > 1 else None


def against_outcomes(shards: Shards) -> str:
    """Return words if scores run against outcomes: an AUC below 1/2 at a level of 97.5 %; or ""."""
    weights = _weights(shards)
    value, outcome = score_and_outcome(shards.probs, shards.labels)
    _, at = np.unique(value, return_inverse=True)
    each = [np.bincount(at, weights * is_it, 10) for is_it in (1 - outcome, outcome)]
    counts = np.array(each, np.float64)
    edges, exact = np.linspace(0, 1, counts.shape[1] + 1), np.zeros((counts.shape[1], 0))
    auc, std, p = map(float, ranking(Sites.of(counts, edges, exact, mechanisms.NoiseLaw())))
    if p > 0.025:
        return ""
    return (
        f"Here scores run against outcomes: AUC {auc:.2f} ({max(auc - 1.96 * std, 0):.2f} to "
        f"{auc + 1.96 * std:.2f}): are labels or classes swapped, or is the column another one?"
    )


def _own(shards: Shards, weights: numerics.Floats) -> dict[str, Any]:
    """Exact numbers of the site's rows and of the model as it is."""
    probs = shards.probs
    value, outcome = score_and_outcome(probs, shards.labels)
    slope = logistic(logit(value), weights, weights * outcome)
    gap, error = _mean(shards, value - outcome, weights)
    score, loss = (_mean(shards, v, weights)[0] for v in (value, _losses(shards, probs)))
    own: dict[str, Any] = {"rows": len(value)}
    own |= {} if shards.subjects is None else {"subjects": len(np.unique(shards.subjects))}
    events = int(outcome.sum()) if shards.subjects is None else round(float(weights @ outcome), 1)
    own["events" if shards.classes == 2 else "correct predictions"] = events
    own |= {"mean score": score, "rate of the outcome": score - gap, "score minus outcome": gap}
    own |= {"its standard error": error, "log loss": loss}
    return own | {"calibration slope": None if slope is None else float(slope[1])}


def _tried(
    shards: Shards, prior: SitePrior, weights: numerics.Floats
) -> tuple[dict[str, Any], at_site.AtSite, numerics.Floats]:
    """Fit with a prior: numbers, the fit, and each row's probabilities by the other folds' fit."""
    at = at_site.recalibrated(shards, [prior], weights)
    probs = at_site.cross_validated(shards, [prior], weights)
    before, after = (_losses(shards, p) for p in (shards.probs, probs))
    fall, error = _mean(shards, before - after, weights)
    numbers = (_mean(shards, after, weights)[0], fall, error, float(at.risk[0]))
    tried: dict[str, Any] = dict(zip(_NUMBERS, numbers, strict=True))
    tried |= {"taken": bool(at.taken[0]), "parameters": at.parameters[0].tolist()}
    tried |= {"prior mean": prior.mean.tolist(), "prior cov": prior.cov.tolist()}
    return tried, at, probs


def _counted(
    shards: Shards, probs: numerics.Floats, weights: numerics.Floats
) -> histogram.Histogram:
    """Rows by score and outcome, for the figure."""
    (value, outcome), edges = score_and_outcome(probs, shards.labels), equal_width(_BUCKETS)
    cell = outcome.astype(np.int64) * _BUCKETS + bucket_of(value, edges)
    counts = np.bincount(cell, weights, 2 * _BUCKETS).reshape(2, _BUCKETS)
    return histogram.Histogram.exact(edges, counts.astype(np.float64))
