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
from fedcal.core import numerics, pages, printable, types
from fedcal.core.checks import same
from fedcal.core.errors import InputError
from fedcal.core.shards import Shards
from fedcal.evaluation import histogram, page, score_release
from fedcal.evaluation.estimators.calibration import logistic, logit
from fedcal.evaluation.sites import effects
from fedcal.evaluation.sites.site_tests import Sites, ranking
from fedcal.experiments.deploy.rows import read_rows, shards_of
from fedcal.experiments.runs import files, folders
from fedcal.experiments.runs.result import versions
from fedcal.metrics.buckets import bucket_of, check_score, equal_width, score_and_outcome
from fedcal.personal import at_site
from fedcal.personal.prior import SitePrior, identity_prior, site_priors
from fedcal.storage.artifact import ARTIFACTS, form_of
from fedcal.storage.atomic import path_of

STATEMENT = (
    "Nothing has left this machine; these numbers are exact: they are for this site's eyes, "
    "publish nothing of them without asking."
)
NO_NEWS = (
    "The release adds almost nothing here: with its noise and few sites the prior is about as "
    "wide as without any other site."
)
BY_CHANCE = (
    "Your rows alone have a calibration slope of {:.2f}, which chance explains. That of the "
    "calibrator is 0 or above."
)
_NUMBERS = ("log loss", "fall of it", "standard error", "chance of harm")
_ABOUT = (
    "Log loss is cross-validated, with the gate in each fold anew: where it refuses there, it is "
    "the model's. The difference of the lines is what the others add. Harm is a log loss "
    f"above the model's by more than {at_site.HARM:g} on new rows."
)
_LITTLE = " if you like, your rows show no gain"
_FOLDS_REFUSE = "cross-validation shows nothing, because with fewer rows the gate refuses"
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
        from fedcal.experiments.report.simulation import write_reading_report

        fresh = not out.exists()

        def write(folder: Path) -> None:
            if fresh:
                out.chmod(0o700)
            if self.calibrator is not None:
                self.calibrator.save(folder / "calibrator.npz")
            (folder / "result.json").write_text(files.to_json(self.told), "utf-8")
            parts = {"schema": 1, "parts": pages.to_json(self.parts)}
            (folder / files.PAGE).write_text(files.to_json(parts), "utf-8")
            write_reading_report(folder)
            for path in folder.iterdir():
                path.chmod(0o600)

        files.write_folder(out, write, stale=folders.AT_HOME.files)


def recalibrate(
    release: str | Path,
    data: str,
    site: str | None = None,
    class_names: Sequence[str] | None = None,
    positive: str | None = None,
    csv: str | None = None,
) -> AtHome:
    """Recalibrate a model at one site.

    Parameters
    ----------
    release, data, site, class_names, positive, csv
        as `fedcal site recalibrate` has them; rows of one subject count as one. Without a site's
        name its prior is that of a new one

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
    site = None if site is None else printable.plain_name("--site", site)
    own_name, known = site if site in sites else "", source.class_names
    prior = priors_of(source, [own_name])[own_name]
    classes = getattr(source, "question", source).classes
    rows = read_rows(data, class_names or known, others=True, csv=csv).in_order(None, positive)
    if rows.classes != classes or (known and rows.class_names != known):
        of = [", ".join(names or ("not named",))[:200] for names in (known, rows.class_names)]
        message = f"{path} is of {classes} classes ({of[0]}), {data} of {rows.classes} ({of[1]})"
        raise InputError(f"{message}: they must be the same, in the same order")
    notes = []
    if site is not None and not own_name and sites:  # of unit user none has a name
        alike = get_close_matches(site, sites, 1)
        meant = f" Did you mean {alike[0]!r}? Its own rows would count twice." if alike else ""
        notes.append(f"The release has no site {site!r}: this one is taken as new.{meant}")
        warnings.warn(notes[0], stacklevel=2)
    elif site is not None and not own_name:
        notes.append("The release hides whole sites: its prior is the same for each, by any name.")
    none = identity_prior(classes)
    spread, wide = (np.sqrt(np.diag(one.cov)) for one in (prior, none))
    if (spread > _CLOSE * wide).all() and (np.abs(prior.mean) < _OFF * wide).all():
        notes.append(NO_NEWS)
    if not own_name and (expected := source.results().get("next_site")):
        notes.append(effects.next_site_sentence(expected))
    shards = shards_of(rows)
    weights = np.ones(len(rows.labels)) if rows.subject is None else shards.weights(1)
    if reversed_order := _reversed(shards, weights):
        raise InputError(f"{reversed_order} A calibrator would only hide it; none was made")
    own, tried = _own(shards, weights), {}
    if (own["calibration slope"] or 0.0) < 0:
        notes.append(BY_CHANCE.format(own["calibration slope"]))
    for name, one in {"without other sites": none, f"from {prior.sites} sites": prior}.items():
        tried[name], at, after = _tried(shards, one, weights)
    made = at_site.calibrator_of(at.chosen[0], classes, rows.input)
    made.of_classes(rows.class_names)
    verdict = _verdict(own, tried["without other sites"], tried[name], classes == 2)
    result = {"schema": 1, "title": f" at home: {rows.name}", "verdict": verdict, "site": site}
    result |= {"release": str(path), "own": own, "priors": tried, "calibrator": made.kind}
    result |= {"statement": [STATEMENT, *notes], "versions": versions()}
    gate = ("refused", "taken")
    lines = [(k, gate[t["taken"]], *(_shown(t[n]) for n in _NUMBERS)) for k, t in tried.items()]
    views = {"before": shards.probs, "after, by the calibrator of other rows": after}
    facts, *curve = _own_parts(own, shards, weights, views)
    table = pages.Table("Recalibration here", ("prior", "gate", *_NUMBERS), tuple(lines), _ABOUT)
    return AtHome(result, made, (facts, table, *curve))


def as_it_is(shards: Shards, name: str, title: str, advice: str) -> AtHome:
    """Exact numbers of a site's rows and of the model as it is, before there is a release.

    Parameters
    ----------
    shards
        of one client; rows of one subject count as one
    name, title
        of the rows, and what follows it in the report's title
    advice
        a sentence on what to do next
    """
    weights = np.ones(len(shards.labels)) if shards.subjects is None else shards.weights(1)
    own = _own(shards, weights)
    numbers = dict(own)
    if (error := own["its standard error"]) is not None:
        low, high = (100 * (own["score minus outcome"] + z * error) for z in (-1.96, 1.96))
        numbers["its standard error"] = f"{error:.4f}: {low:.1f} to {high:.1f} points (95 %)"
    verdict = f"Here your model {_bias(own, shards.classes == 2)}"
    if (slope := own["calibration slope"]) is not None:
        verdict += f"; the calibration slope is {slope:.2f} (1 is right, below 1 is too extreme)"
    verdict = _reversed(shards, weights) or f"{verdict}."
    result = {"schema": 1, "release": name, "title": title, "verdict": verdict, "own": own}
    result |= {"statement": [STATEMENT, advice], "versions": versions()}
    views = {"model": shards.probs}
    return AtHome(result, None, _own_parts(numbers, shards, weights, views))


def _shown(value: float | str | None) -> pages.Entry:
    if value is None or isinstance(value, str):
        return value or "not defined"
    return "< 0.0001" if 0 < value < 5e-5 else round(value, 4) or 0


def _own_parts(
    own: Mapping[str, Any], shards: Shards, weights: types.Floats, views: Mapping[str, types.Floats]
) -> tuple[pages.Part, ...]:
    """Return a table of the exact numbers and, if there is one, the reliability curve."""
    counted = {view: _counted(shards, probs, weights) for view, probs in views.items()}
    curve = page.reliability_part("Reliability", counted, check_score("", shards.classes), 0.95)
    facts = tuple((name, _shown(value)) for name, value in own.items())
    note = "Slope below 1: scores too extreme."
    note += " Each subject counts once, in all but the number of rows." * ("subjects" in own)
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
    same("score that a prior is learnt from", asked.score, check_score("", asked.classes))
    return site_priors(release, only)


def _verdict(
    own: Mapping[str, Any], alone: Mapping[str, Any], fitted: Mapping[str, Any], binary: bool
) -> str:
    """Say what to do, and why; `alone` is what was found without other sites."""
    rows = f"{own['rows']:,} row{'s' * (own['rows'] > 1)}"
    risk = fitted["chance of harm"]
    chance = f"{float(f'{100 * risk:.2g}'):g} %" if risk >= 0.001 else "below 0.1 %"
    if not fitted["taken"]:
        return (
            f"Keep the model as it is: with {rows} and this prior the chance of harm is {chance} "
            f"(at most {100 * at_site.MOST_RISK:.0f} % is accepted)."
        )
    fall, (before, after) = fitted["fall of it"], (f"{of['log loss']:.2f}" for of in (own, fitted))
    loss = f"{'falls' if fall > 0 else 'rises'} from {before} to {after}"
    loss = f"stays at {after}" if before == after else loss
    loss = f"with this calibrator log loss {loss} (cross-validated on your {rows})"
    loss = loss if abs(fall) > 1e-9 else _FOLDS_REFUSE
    return (
        f"Recalibrate{_LITTLE * (fall < -1e-9)}: your model {_bias(own, binary)}; {loss}; the "
        f"chance that it is worse than the model by more than {at_site.HARM:g} is {chance}. "
        f"Without other sites log loss would be {alone['log loss']:.2f}."
    )


def _bias(own: Mapping[str, Any], binary: bool) -> str:
    """Say how far a model is off on average, and whether that may be chance."""
    points = 100 * own["score minus outcome"]
    if abs(points) < 0.5:
        return "is right on average"
    way = (("high", "low") if binary else ("sure", "unsure"))[points < 0]
    size = f"{abs(points):.0f} point{'s' * (f'{abs(points):.0f}' != '1')}"
    chance = ", which may be chance" * (abs(points) < 196 * (own["its standard error"] or 1))
    return f"{'says' if binary else 'is'} {size} too {way} on average{chance}"


def _losses(shards: Shards, probs: types.Floats) -> types.Floats:
    return -numerics.label_entries(numerics.logits_from_probs(probs), shards.labels)


def _mean(
    shards: Shards, values: types.Floats, weights: types.Floats
) -> tuple[float, float | None]:
    """Weighted mean and its standard error; subjects, not their rows, are independent."""
    mean = float(weights @ values / weights.sum())
    who = np.arange(len(values)) if shards.subjects is None else shards.subjects
    slack = np.bincount(np.unique(who, return_inverse=True)[1], weights * (values - mean))
    n = len(slack)
    return mean, math.sqrt(slack @ slack * n / (n - 1)) / float(weights.sum()) if n > 1 else None


def _reversed(shards: Shards, weights: types.Floats) -> str:
    """Return words if scores run against outcomes: an AUC below 1/2 at a level of 97.5 %; or ""."""
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


def _own(shards: Shards, weights: types.Floats) -> dict[str, Any]:
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
    shards: Shards, prior: SitePrior, weights: types.Floats
) -> tuple[dict[str, Any], at_site.AtSite, types.Floats]:
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


def _counted(shards: Shards, probs: types.Floats, weights: types.Floats) -> histogram.Histogram:
    """Rows by score and outcome, for the figure."""
    (value, outcome), edges = score_and_outcome(probs, shards.labels), equal_width(_BUCKETS)
    cell = outcome.astype(np.int64) * _BUCKETS + bucket_of(value, edges)
    counts = np.bincount(cell, weights, 2 * _BUCKETS).reshape(2, _BUCKETS)
    return histogram.Histogram.exact(edges, counts.astype(np.float64))
