"""What a quarter's release says: the content of `study.json`, computed from the release alone.

Everything here is post-processing of one private release and of earlier ones, and costs nothing
more. It is pure and deterministic, so that anybody who has the folder can compute it again.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedcal.core import pages
from fedcal.core.errors import InputError
from fedcal.evaluation.by_group import changes_by
from fedcal.evaluation.calibrate import calibrator_from
from fedcal.evaluation.drift import few
from fedcal.evaluation.estimates import evaluate
from fedcal.evaluation.histogram import Histogram
from fedcal.evaluation.pages.figures import reliability_part
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.evaluation.sites import next_site
from fedcal.evaluation.sites.verdicts import detectable, verdicts_of
from fedcal.evaluation.thresholds import at_threshold
from fedcal.experiments.runs.rereading import comparable
from fedcal.experiments.study.next_steps import MOST, in_words
from fedcal.experiments.study.study_file import Study
from fedcal.metrics import gap_change
from fedcal.metrics.holm import ERROR
from fedcal.personal.prior import site_priors
from fedcal.queries.evaluation import names_text

SCHEMA = 1
ALL = ""
"""Name of all sites together, where sites are keys."""

OF_SITES = {
    "positive": ("prevalence", "roc_auc", "brier", "ece"),
    "confidence": ("accuracy", "confidence_auc", "brier", "ece"),
}
"""Metrics of each site, by score."""

_OF_GROUPS = ("gap", "calibration_slope")
_MOST_PATIENTS = 1_000_000


@dataclass(frozen=True)
class Facts:
    """What the release itself does not say of its run.

    Attributes
    ----------
    name
        of the quarter and its folder, as "2026Q4"
    date
        day of the run in UTC, as "2026-12-31"
    rehearsal
        its rows were one file, and nobody was asked
    took_part, absent
        sites whose counts are in the release, and the others
    spent, left
        epsilon of one of those protected in the whole study, after this release
    one_machine
        the coordinator's signing key lies on the server's machine
    statement
        what is promised, in sentences, as the run's record has it
    ledger
        the ledger's line of the run: `fedcal.privacy.ledger.Entry` as plain values; {} = none
    versions
        of what computed it
    roster
        digest of the roster; "" in a rehearsal
    """

    name: str
    date: str
    rehearsal: bool
    took_part: tuple[str, ...]
    absent: tuple[str, ...]
    spent: float
    left: float
    one_machine: bool
    statement: tuple[str, ...]
    ledger: Mapping[str, Any]
    versions: Mapping[str, str]
    roster: str = ""

    def __post_init__(self) -> None:
        if Path(self.name).name != self.name or self.name.startswith("."):
            raise InputError(f"a quarter's name must be that of a folder, got {self.name[:80]!r}")
        try:
            datetime.date.fromisoformat(self.date)
        except ValueError:
            raise InputError(f"a quarter's date must be a day, got {self.date[:80]!r}") from None

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Facts:
        """Those of a `study.json`; KeyError or TypeError for anything else."""
        lists = ("took_part", "absent", "statement")
        return cls(**{k: tuple(v) if k in lists else v for k, v in told["facts"].items()})

    def check(self, study: Study) -> None:
        """InputError if they cannot be of a release of this study."""
        if sorted(self.took_part + self.absent) != sorted(study.sites):
            raise InputError("the sites that took part and those absent are not the study's")
        if len(self.took_part) < study.quorum:
            raise InputError(f"{len(self.took_part)} sites took part, the quorum is {study.quorum}")
        total = study.epsilon_total
        if not math.isclose(self.spent + self.left, total, rel_tol=1e-6) or self.left < -1e-6:
            raise InputError(f"epsilon spent {self.spent:g} and left {self.left:g} are not {total:g}")


class Earlier(NamedTuple):
    """An earlier quarter: its release, and its `study.json`, of which `OF_EARLIER` is needed."""

    release: ScoreRelease
    told: Mapping[str, Any]


OF_EARLIER = ("model", "study", "facts")


def told_of(
    study: Study, release: ScoreRelease, facts: Facts, earlier: Mapping[str, Earlier]
) -> dict[str, Any]:
    """The content of `study.json`: strict JSON.

    Parameters
    ----------
    study
        as it was sealed
    release
        of this quarter
    facts
        of its run
    earlier
        name of an earlier quarter -> it

    Raises
    ------
    InputError
        If the facts are not of the study, or the release does not have its sites.
    """
    facts.check(study)
    here, level = present(release, facts.took_part), ERROR / study.per_year
    since = {name: _since(study, release, facts, one) for name, one in earlier.items()}
    both = {
        name: present(earlier[name].release, one["sites"])
        for name, one in since.items()
        if not one["why"]
    }
    verdicts = verdicts_of(here, both, level=level).to_json()
    tests = len(facts.took_part) + sum(map(len, verdicts["changes"].values()))
    histograms = {site: h for (_, site, _), h in here.histograms.items()}
    score, edges = study.score, here.question.bucket_edges
    told: dict[str, Any] = {
        "schema": SCHEMA,
        "study": _study(study),
        "model": _model(study),
        "facts": _plain(asdict(facts)),
        "release": {
            "epsilon": study.epsilon_release,
            "noise_std": release.std,
            "law": release.law,
            "edges": edges.tolist(),
            "data": release.data or "",
        },
        "since": since,
        "verdicts": verdicts,
        "tests": tests,
        "enough": _enough(study, here, tests, level),
        "sites": {site: _metrics(h, score, OF_SITES[score]) for site, h in histograms.items()},
        "calibrator": _calibrator(study, here, histograms[ALL]),
        "from_others": _from_others(here),
        "thresholds": _thresholds(study, histograms),
        "groups": [
            {"site": site, "group": group, **_metrics(h, score, _OF_GROUPS)}
            for (site, group), h in here.within.items()
        ],
        "next_site": _next_site(here),
        "curves": pages.to_json(_curves(histograms, score)),
    }
    return {**told, **in_words(told)}


def present(release: ScoreRelease, sites: Sequence[str]) -> ScoreRelease:
    """The release of these sites alone: the counts of one that is absent are noise.

    Raises InputError if they were not counted apart.
    """
    asked, names = release.question, release.question.group_names
    if asked.by != "site" or not set(sites) <= {*names}:
        raise InputError(f"the release does not count {', '.join(sites)[:200]} apart")
    own = release.counts.reshape(len(names), -1)[[names.index(site) for site in sites]]
    question = replace(asked, groups=names_text(sites))
    found = replace(release, question=question, counts=own.ravel())
    found.of_classes(release.class_names)
    return found


def _study(study: Study) -> dict[str, Any]:
    return {
        "name": study.study,
        "terms": study.digest,
        "question": study.question,
        "contributors": list(study.contributors),
        "sites": dict(study.sites),
        "protect": study.protect,
        "plural": study.plural,
        "per_year": study.per_year,
        "epsilon_total": study.epsilon_total,
        "until": study.until.isoformat(),
        "score": study.score,
        "committee": [len(study.committee.members), study.committee.threshold],
        "quorum": study.quorum,
        "colluding": study.may_collude,
        "groups": list(study.groups),
    }


def _model(study: Study) -> dict[str, Any]:
    model = study.model
    return {"name": model.name, "version": model.version, "classes": list(study.classes)}


def _since(study: Study, release: ScoreRelease, facts: Facts, one: Earlier) -> dict[str, Any]:
    """What is kept of an earlier quarter, and why it cannot be compared; "" = it can."""
    then = {key: one.told[key] for key in OF_EARLIER}
    was, model = then["facts"], _model(study)
    why = ""
    if was["rehearsal"] != facts.rehearsal:
        why = "one of the two is a rehearsal"
    for key in ("name", "version", "classes"):
        if not why and then["model"][key] != model[key]:
            why = f"the {key} of the model was {then['model'][key]}, now it is {model[key]}"
    if not why and then["study"]["terms"] != study.digest:
        why = "the study had other terms"
    sites = [site for site in facts.took_part if site in was["took_part"]]
    if not why and not sites:
        why = "no site took part in both"
    try:
        why or comparable(one.release, release)
    except InputError as e:
        why = str(e)
    kept = {"rehearsal": was["rehearsal"], "took_part": list(was["took_part"])}
    return {
        "why": why,
        "sites": sites,
        "model": then["model"],
        "study": {"terms": then["study"]["terms"]},
        "facts": kept | {"date": was["date"]},
    }


def _plain(value: Any) -> Any:
    """Lists and dictionaries of what JSON has; None for what is not finite."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _metrics(h: Histogram, score: str, names: Sequence[str]) -> dict[str, Any]:
    """How many there are, and metrics with intervals; {} of these where there are too few."""
    found = {} if few(h) else evaluate(h, score, only=names)
    rows = {"value": h.rows, "noise": h.rows_std}
    return {"rows": rows, "metrics": {name: e.to_json() for name, e in found.items()}}


def _enough(study: Study, here: ScoreRelease, tests: int, level: float) -> int | None:
    """How many patients a site needs for a gap of `MOST` to be seen, to two digits."""

    def hidden(patients: float) -> bool:
        edges, std = here.question.bucket_edges, here.std
        law = {"rate": study.model.rate, "edges": edges, "std": std}
        return detectable(patients, **law, tests=max(tests, 1), level=level) > MOST

    grid = [d * 10**k for k in range(1, 6) for d in range(10, 100)]
    found = int(np.searchsorted([not hidden(n) for n in grid], True))
    return grid[found] if found < len(grid) else None


def _calibrator(study: Study, here: ScoreRelease, whole: Histogram) -> dict[str, Any]:
    """What one calibrator for all sites would do to the gap of each of them."""
    score: Any = study.score
    try:
        made = calibrator_from(whole, score, "platt", here.question.classes, here.input)
    except InputError as e:
        return {"why": str(e)}
    return _plain(gap_change.told(changes_by(here.histograms, made), score))  # type: ignore[no-any-return]


def _from_others(here: ScoreRelease) -> dict[str, Any]:
    """What the other sites say of the slope and the offset of each: its prior at home."""
    found = {}
    for site, prior in site_priors(here).items():
        spread = np.sqrt(np.diag(prior.cov))
        ends = np.stack([prior.mean, prior.mean - 1.96 * spread, prior.mean + 1.96 * spread])
        keys = ("value", "low", "high")
        own = {"slope": dict(zip(keys, np.exp(ends[:, -1]).tolist(), strict=True))}
        if len(prior.mean) > 1:
            own["offset"] = dict(zip(keys, ends[:, 0].tolist(), strict=True))
        found[site] = own
    return {site: own for site, own in found.items() if site}


def _thresholds(study: Study, histograms: Mapping[str, Histogram]) -> dict[str, Any]:
    return {
        f"{at:g}": {
            site: {} if few(h) else {n: e.to_json() for n, e in at_threshold(h, at).items()}
            for site, h in histograms.items()
        }
        for at in study.model.thresholds
    }


def _next_site(here: ScoreRelease) -> dict[str, Any]:
    counts, root = here.by_site
    if len(counts) < 3:
        return {}
    asked = here.question
    return next_site.next_site(counts, asked.bucket_edges, root, asked.group_names)


def _curves(histograms: Mapping[str, Histogram], score: str) -> list[pages.Curve]:
    """Reliability of each site beside that of all."""
    whole = {"all sites": histograms[ALL]}
    found = [
        reliability_part(site, whole | ({} if few(h) else {"this site": h}), score, 0.95)
        for site, h in histograms.items()
        if site
    ]
    return [part for part in found if part is not None]
