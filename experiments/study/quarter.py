"""What a quarter's release says: the content of `study.json`, and the folder that holds it.

All of it is post-processing of one private release and of earlier ones. It is pure, so that
whoever has the folder can compute it again (`fedcal.experiments.study.verify`).
"""

from __future__ import annotations

import datetime
import hashlib
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from fedcal.evaluation.sites.verdicts import detectable, verdicts_of

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
from fedcal.evaluation.thresholds import at_threshold
from fedcal.experiments.runs.files import to_json, write_folder
from fedcal.experiments.runs.folders import QUARTER
from fedcal.experiments.runs.rereading import comparable
from fedcal.experiments.study.next_steps import MOST, in_words
from fedcal.experiments.study.quarter_page import write_quarter_page
from fedcal.experiments.study.sealed import Sealed, signing_text
from fedcal.experiments.study.study_file import Study
from fedcal.metrics import gap_change
from fedcal.metrics.holm import ERROR
from fedcal.personal.prior import site_priors
from fedcal.queries.evaluation import names_text
from fedcal.secure_aggregation import keys
from fedcal.secure_aggregation.keys import SigningKey

TOLD, LEDGER, SIGNATURE, STUDY, SEALED = (
    *("study.json", "ledger.json", "signature.json", "study.toml", "study.sealed"),
)
EARLIER = "earlier-"
"""Files of a quarter's folder; the last is the beginning of the names of earlier releases."""

SIGNED = "study-quarter"
"""Purpose of the signature."""

Earlier = tuple[ScoreRelease, Mapping[str, Any]]
"""A quarter: its release, and of its `study.json` the keys `KEPT` at least."""

KEPT = ("model", "terms", "rehearsal", "took_part", "date")
_METRICS = {
    "positive": ("prevalence", "roc_auc", "brier"),
    "confidence": ("accuracy", "confidence_auc", "brier"),
}
_OF_GROUPS = ("gap", "calibration_slope")
_NUMBERS = [digits * 10**k for k in range(1, 6) for digits in range(10, 100)]


@dataclass(frozen=True)
class Facts:
    """What a release does not say of its run.

    Attributes
    ----------
    name, date
        of the quarter and its folder ("2026Q4"), and the day of the run in UTC ("2026-12-31")
    rehearsal
        its rows were one file, and nobody was asked
    took_part, absent
        sites whose counts are in the release, and the others
    spent, left
        epsilon of one of those protected in this year of the study, after this release
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

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Facts:
        """Those of a `study.json`; KeyError, TypeError or ValueError for anything else."""
        own = {field.name: told[field.name] for field in fields(cls)}
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in own.items()})

    def check(self, study: Study) -> None:
        """InputError if they cannot be of a release of this study."""
        datetime.date.fromisoformat(self.date)
        if sorted(self.took_part + self.absent) != sorted(study.sites):
            raise InputError("the sites that took part and the absent ones are not the study's")
        if len(self.took_part) < study.quorum:
            raise InputError(f"{len(self.took_part)} sites took part, fewer than {study.quorum}")
        if not math.isclose(self.spent + self.left, study.epsilon) or self.left < 0:
            raise InputError(f"epsilon {self.spent:g} + {self.left:g} is not {study.epsilon:g}")


def told_of(
    study: Study, release: ScoreRelease, facts: Facts, earlier: Mapping[str, Earlier]
) -> dict[str, Any]:
    """The content of `study.json`: strict JSON.

    Parameters
    ----------
    study, release, facts
        the study as it was sealed, this quarter's release, and what is known of its run
    earlier
        name -> an earlier quarter

    Raises
    ------
    InputError
        If the facts are not of the study, or the release does not have its sites.
    """
    facts.check(study)
    here, level, score = present(release, facts.took_part), ERROR / study.per_year, study.score
    since = {name: _since(study, release, facts, *one) for name, one in earlier.items()}
    both = {n: present(earlier[n][0], one["sites"]) for n, one in since.items() if not one["why"]}
    verdicts = verdicts_of(here, both, level=level).to_json()
    tests = len(facts.took_part) + sum(map(len, verdicts["changes"].values()))
    histograms = {site: h for (_, site, _), h in here.histograms.items()}
    whole = histograms.pop("")
    model = study.model
    told: dict[str, Any] = {
        "schema": 1,
        "study": study.study,
        "terms": study.digest,
        **asdict(facts),
        "question": study.question,
        "contributors": study.contributors,
        "model": {"name": model.name, "version": model.version, "classes": study.classes},
        "agreed": {
            **{name: getattr(study, name) for name in ("protect", "plural", "per_year")},
            **{name: getattr(study, name) for name in ("epsilon", "epsilon_release", "score")},
            **{name: getattr(study, name) for name in ("quorum", "may_collude")},
            "until": study.until.isoformat(),
            "committee": [len(study.committee.members), study.committee.threshold],
            "about": study.sites,
        },
        "release": {"noise_std": release.std, "edges": here.question.bucket_edges.tolist()},
        "since": since,
        "level": level,
        "sites": {
            site: {**verdict, **_metrics(histograms[site], score, _METRICS[score])}
            for site, verdict in verdicts["sites"].items()
        },
        "whole": _metrics(whole, score, _METRICS[score]),
        "changes": verdicts["changes"],
        "enough": _enough(study, here, tests, level),
        "calibrator": _calibrator(here, whole, score),
        "own": _own(here),
        "thresholds": {
            f"{at:g}": {
                site: {} if few(h) else {n: e.to_json() for n, e in at_threshold(h, at).items()}
                for site, h in {"all sites": whole, **histograms}.items()
            }
            for at in model.thresholds
        },
        "groups": [
            {"site": site or "all sites", "group": group, **_metrics(h, score, _OF_GROUPS)}
            for (site, group), h in here.within.items()
        ],
        "next_site": _next_site(here),
        "curves": pages.to_json(_curves(whole, histograms, score)),
    }
    told = _plain(told)
    return {**told, **in_words(told)}


def present(release: ScoreRelease, sites: Sequence[str]) -> ScoreRelease:
    """The release of these sites alone: counts of one that is absent are noise.

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


def _since(
    study: Study, release: ScoreRelease, facts: Facts, before: ScoreRelease, told: Mapping[str, Any]
) -> dict[str, Any]:
    """What is kept of an earlier quarter, and why it cannot be compared; "" = it can."""
    sites, model, why = [s for s in facts.took_part if s in told["took_part"]], study.model, ""
    then, now = told["model"], {"name": model.name, "version": model.version}
    if changed := [k for k, v in now.items() if then[k] != v]:
        why = f"the model's {changed[0]} was {then[changed[0]]!r}, now it is {now[changed[0]]!r}"
    elif told["terms"] != study.digest:
        why = "the study had other terms"
    elif told["rehearsal"] != facts.rehearsal:
        why = "one of the two is a rehearsal"
    elif not sites:
        why = "no site took part in both"
    try:
        comparable(before, release)
    except InputError as e:
        why = why or str(e)
    return {**{key: told[key] for key in KEPT}, "why": why, "sites": sites}


def _plain(value: Any) -> Any:
    """As JSON has it; None for a number that is not finite."""
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
    """How many of those protected a site needs for a gap of `MOST` to be seen, to two digits."""
    law = {"rate": study.model.rate, "edges": here.question.bucket_edges, "std": here.std}

    def seen(number: int) -> bool:
        return detectable(number, **law, tests=tests, level=level) <= MOST

    at = bisect_left(_NUMBERS, True, key=seen)
    return _NUMBERS[at] if at < len(_NUMBERS) else None


def _calibrator(here: ScoreRelease, whole: Histogram, score: Any) -> dict[str, Any]:
    """What one calibrator for all sites would do to the gap of each of them."""
    try:
        made = calibrator_from(whole, score, "platt", here.question.classes, here.input)
    except InputError:  # noise left nothing to fit
        return {}
    return gap_change.told(changes_by(here.histograms, made), score)


def _own(here: ScoreRelease) -> dict[str, Any]:
    """Offset and slope of each site, as the other sites let expect it: its prior at home."""
    found: dict[str, Any] = {}
    for site, prior in site_priors(here, here.question.group_names).items():
        half = 1.96 * np.sqrt(np.diag(prior.cov))
        ends = np.stack([prior.mean, prior.mean - half, prior.mean + half])
        ends[:, -1] = np.exp(ends[:, -1])
        each = dict(zip(("slope", "offset"), ends.T[::-1].tolist(), strict=False))
        found[site] = {
            k: dict(zip(("value", "low", "high"), v, strict=True)) for k, v in each.items()
        }
    return found


def _next_site(here: ScoreRelease) -> dict[str, Any]:
    (counts, root), asked = here.by_site, here.question
    if len(counts) < 3:
        return {}
    return next_site.next_site(counts, asked.bucket_edges, root, asked.group_names)


def _curves(whole: Histogram, histograms: Mapping[str, Histogram], score: str) -> list[pages.Curve]:
    """Reliability of each site beside that of all."""
    each = {
        s: {"all sites": whole} | ({} if few(h) else {"this site": h})
        for s, h in histograms.items()
    }
    found = [reliability_part(site, series, score, 0.95) for site, series in each.items()]
    return [part for part in found if part is not None]


# -- the folder ----------------------------------------------------------------------------------


def write_quarter(
    folder: Path,
    study: Study,
    sealed_text: str,
    release: ScoreRelease,
    facts: Facts,
    earlier: Mapping[str, Earlier],
    signer: SigningKey | None,
) -> dict[str, Any]:
    """Write all files of a quarter, or none; the content of its `study.json`.

    Parameters
    ----------
    study, release, facts, earlier
        as `told_of` takes them
    sealed_text
        of the sealed study; of a rehearsal that of the study's file
    signer
        the coordinator's key; None = to be signed later

    Raises
    ------
    InputError
        If these do not fit together.
    FedcalError
        If a file cannot be written.
    """
    made: dict[str, Any] = {}

    def write(draft: Path) -> None:
        digest = ""
        (draft / STUDY).write_text(study.to_toml(), "utf-8")
        if not facts.rehearsal:
            (draft / SEALED).write_text(sealed_text, "utf-8")
            digest = Sealed.read(draft / SEALED).digest
        versions = {**facts.versions, "matplotlib": version("matplotlib")}
        made.update(
            told_of(study, release, replace(facts, roster=digest, versions=versions), earlier)
        )
        (draft / TOLD).write_text(to_json(made), "utf-8")
        (draft / LEDGER).write_text(to_json({"schema": 1, **made["ledger"]}), "utf-8")
        release.write(draft, release.form)
        for name, (before, _) in earlier.items():
            before.write(draft, f"{EARLIER}{name}")
        write_quarter_page(draft, made)
        if signer is not None:
            write_signature(draft, signer)

    write_folder(folder, write, stale=QUARTER.files)
    return made


def hashes_of(folder: Path) -> dict[str, str]:
    """Name -> SHA-256 of each file of a quarter in a folder but the signature."""
    names = sorted(
        {p.name for pattern in QUARTER.files for p in folder.glob(pattern)} - {SIGNATURE}
    )
    return {n: hashlib.sha256((folder / n).read_bytes()).hexdigest() for n in names}


def write_signature(folder: Path, signer: SigningKey) -> None:
    """Sign the files of a quarter in a folder."""
    fields = {"schema": 1, "files": hashes_of(folder), "coordinator": signer.public.hex()}
    made = signer.sign(SIGNED, keys.digest(SIGNED, signing_text(fields)))
    (folder / SIGNATURE).write_text(to_json({**fields, "signature": made.hex()}), "utf-8")
