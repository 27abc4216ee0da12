"""Summary of a quarter's release: the content of `study.json`, and the folder that holds it.

All of it is post-processing of one private release and of earlier ones. It is pure, so that
whoever has the folder can compute it again (`fedcal.sites.verify`).
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedcal.core import pages
from fedcal.core.checks import InputError, integer, same
from fedcal.evaluation import findings, intervals, page
from fedcal.evaluation.estimates import at_threshold, evaluate
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.evaluation.sites.effects import next_site
from fedcal.evaluation.sites.verdicts import enough, groups_of, verdicts_of
from fedcal.metrics import bootstrap, histogram, score_table
from fedcal.privacy.making import differences
from fedcal.results import files
from fedcal.results.page import read_json, reading
from fedcal.run import folders, rereading
from fedcal.secure_aggregation.keys import SigningKey
from fedcal.sites.quarter_page import Quarter, in_words, quarter_page
from fedcal.sites.sealed import Sealed, write_signature
from fedcal.sites.study_file import NAME, Study

SUMMARY_FILE, LEDGER, STUDY, SEALED = "study.json", "ledger.json", "study.toml", "study.sealed"
EARLIER = "earlier-"
"""Files of a quarter's folder, and how the names of earlier releases begin."""

Earlier = tuple[ScoreRelease, Mapping[str, Any]]
"""A quarter: its release, and of its `study.json` the keys `KEPT` at least."""

Before = Mapping[str, Earlier]
"""Earlier quarters by name."""

KEPT = ("terms", "digest", "rehearsal", "took_part", "date")
_METRICS = {"positive": ("prevalence", "brier"), "confidence": ("accuracy", "confidence_brier")}
_AGREED = ("plural", "epsilon_release", "quorum", "score", "classes")


@dataclass(frozen=True)
class QuarterFacts:
    """Facts of a run that its release does not contain.

    `name` is that of the quarter and its folder, `date` the day of the run in UTC (2026-12-31); a
    `rehearsal` is of one file. Epsilon `spent` and `left` are of one of those protected in this
    year of the study, after the release. `one_machine`: the coordinator's signing key lies on the
    server's. `statement` and `more` are the run's, `ledger` its `fedcal.privacy.ledger.Entry` as
    plain values ({} = none), `roster` the digest ("" in a rehearsal).
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
    more: tuple[str, ...]
    ledger: Mapping[str, Any]
    versions: Mapping[str, str]
    roster: str = ""

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> QuarterFacts:
        """Return the facts of a `study.json`; KeyError or TypeError for anything else."""
        own: dict[str, Any] = {field.name: content[field.name] for field in fields(cls)}
        own |= {key: tuple(own[key]) for key in ("took_part", "absent", "statement", "more")}
        return cls(**own)

    def check(self, study: Study) -> None:
        """InputError if they cannot be of a release of this study."""
        same("sites, absent ones too,", sorted(self.took_part + self.absent), sorted(study.sites))
        integer("the number of sites that took part", len(self.took_part), study.quorum)
        if not math.isclose(self.spent + self.left, study.epsilon) or self.left < 0:
            raise InputError(f"epsilon {self.spent:g} + {self.left:g} is not {study.epsilon:g}")


def quarter_summary(
    study: Study, release: ScoreRelease, facts: QuarterFacts, earlier: Mapping[str, Earlier]
) -> dict[str, Any]:
    """Return the content of `study.json`, strict JSON; `earlier` are quarters by name.

    What is said of all sites leaves out those whose rows cannot be right (`left_out`). Raises
    InputError if the facts are not of the study, or the release does not have its sites.
    """
    facts.check(study)
    here, score = present(release, facts.took_part), study.score
    since = {name: _since(study, release, facts, *one) for name, one in earlier.items()}
    both = {n: present(earlier[n][0], one["sites"]) for n, one in since.items() if not one["why"]}
    level = bootstrap.ERROR / study.per_year
    verdicts = verdicts_of(here, both, level=level)
    for name, before in both.items():  # of that release alone: this one needs no other's word
        then = verdicts_of(before, {}, level=level)["sites"]
        since[name]["faults"] = [site for site, one in then.items() if one["named"]]
    usable = present(here, [s for s in facts.took_part if s not in verdicts["left_out"]])
    histograms = {site or "all sites": h for (_, site, _), h in here.histograms.items()}
    histograms["all sites"] = next(iter(usable.histograms.values()))
    each, sites, edges = histograms.items(), usable.by_site, here.question.edges_read
    content: dict[str, Any] = {
        "schema": 1,
        "study": study.study,
        "terms": json.loads(study.terms),
        "digest": study.digest,
        **asdict(facts),
        "question": study.question.text,
        **{name: getattr(study, name) for name in _AGREED},
        "about": study.sites,
        "until": study.until.isoformat(),
        "committee": [len(study.committee.members), study.committee.threshold],
        "noise_std": release.std,
        "edges": edges.tolist(),
        "since": since,
        **verdicts,
        "enough": enough(here, verdicts),
        "metrics": {site: _metrics(h, score, _METRICS[score]) for site, h in each},
        "thresholds": {
            f"{at:g}": {
                s: _plain(h, {} if findings.few(h) else at_threshold(h, at)) for s, h in each
            }
            for at in study.model.thresholds
        },
        "groups": groups_of(here),
        "next_site": {},
        "curves": pages.to_json(_curves(histograms, score)),
    }
    if len(sites.rows) > 2:
        content["next_site"] = next_site(sites)
    content = json.loads(
        json.dumps(content), parse_constant=lambda _: None
    )  # NaN is none of JSON's
    return {**content, **in_words(content)}


def earlier_of(out: Path, study: Study) -> dict[str, Earlier]:
    """Return the study's other quarters beside a folder, by day; warns of unreadable ones."""
    quarters, out = [], out.resolve()
    for path in sorted(out.parent.glob(f"*/{SUMMARY_FILE}")):
        try:
            content, name = read_json(path), path.parent.name
            if (
                not isinstance(content, dict)
                or content.get("study") != study.study
                or name == out.name
            ):
                continue
            with reading(path.parent, SUMMARY_FILE):
                facts = {**content["terms"]["model"]} | {key: content[key] for key in KEPT}
                if not facts["rehearsal"] and NAME.fullmatch(name):
                    one = rereading.read_release(path.with_name("release.npz")), content
                    quarters.append((str(facts["date"]), name, one))
        except InputError as e:
            warnings.warn(f"passed over: {e}", stacklevel=2)
    return {name: one for _, name, one in sorted(quarters, key=lambda one: one[:2])}


def ends_of(earlier: Mapping[str, Earlier]) -> dict[str, Earlier]:
    """Return the first and the last of earlier quarters by day: a report compares with these."""
    names = [*earlier]
    return {name: earlier[name] for name in [*names[:1], *names[1:][-1:]]}


def present(release: ScoreRelease, sites: Sequence[str]) -> ScoreRelease:
    """Return the release of these sites alone: counts of an absent site are noise.

    Raises InputError if they were not counted apart.
    """
    asked, names = release.question, release.question.group_names
    if asked.by != "site" or not set(sites) <= {*names}:
        raise InputError(f"the release does not count {', '.join(sites)[:200]} apart")
    own = release.counts.reshape(len(names), -1)[[names.index(site) for site in sites]]
    question = replace(asked, groups=score_table.names_text(sites))
    narrowed = replace(release, question=question, counts=own.ravel())
    narrowed.of_classes(release.class_names)
    return narrowed


def _since(
    study: Study,
    release: ScoreRelease,
    facts: QuarterFacts,
    before: ScoreRelease,
    earlier: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the facts kept of an earlier quarter, and why it cannot be compared ("" = it can)."""
    sites, why = [site for site in facts.took_part if site in earlier["took_part"]], ""
    edges = [one.question.bucket_edges for one in (before, release)]
    if changed := next(differences("", earlier["terms"], json.loads(study.terms), 0.0), None):
        why = "{} was {}, now it is {}".format(*changed)[:200]
    elif earlier["rehearsal"] != facts.rehearsal or not sites:
        why = "one of the two is a rehearsal, or no site took part in both"
    elif before.input != release.input or edges[0].tolist() != edges[1].tolist():
        why = "its scores were counted in other buckets"
    return {**{key: earlier[key] for key in KEPT}, "why": why, "sites": sites}


def _metrics(h: histogram.Histogram, score: str, names: Sequence[str]) -> dict[str, Any]:
    return _plain(h, {} if findings.few(h) else evaluate(h, score, only=names))


def _plain(h: histogram.Histogram, estimates: Mapping[str, intervals.Estimate]) -> dict[str, Any]:
    """Return the number of rows, and metrics with intervals; {} of these if there are too few."""
    of = {name: e.to_json() for name, e in estimates.items()}
    return {"rows": h.rows, "noise": h.rows_std, "of": of}


def _curves(histograms: Mapping[str, histogram.Histogram], score: str) -> list[pages.Curve]:
    """Reliability of each site beside that of all."""
    (name, overall), *sites = histograms.items()
    each = {
        site: {name: overall} | ({} if findings.few(h) else {"this site": h}) for site, h in sites
    }
    parts = [page.reliability_part(site, series, score, 0.95) for site, series in each.items()]
    return [part for part in parts if part is not None]


def write_quarter(
    folder: Path,
    study: Study,
    sealed_text: str,
    release: ScoreRelease,
    facts: QuarterFacts,
    earlier: Mapping[str, Earlier],
    signer: SigningKey | None,
) -> dict[str, Any]:
    """Write all files of a quarter, or none; return the content of its `study.json`.

    `sealed_text` is of the sealed study (a rehearsal has none); without the coordinator's key as
    `signer` it is to be signed later. Raises InputError if these do not fit together, FedcalError
    if a file cannot be written.
    """
    made: dict[str, Any] = {}
    earlier = ends_of(earlier)

    def write(draft: Path) -> None:
        digest = ""
        if not facts.rehearsal:
            (draft / SEALED).write_text(sealed_text, "utf-8")
            digest = Sealed.read(draft / SEALED).roster.digest
        versions = {**facts.versions, "matplotlib": version("matplotlib")}
        known = replace(facts, roster=digest, versions=versions)
        made.update(quarter_summary(study, release, known, earlier))
        write_files(draft, study, release, made, earlier)
        if signer is not None:
            write_signature(draft, signer)

    files.write_folder(folder, write, stale=folders.QUARTER.files)
    return made


def write_files(
    folder: Path, study: Study, release: ScoreRelease, of: Quarter, then: Before
) -> None:
    """Write what follows from terms, release, quarters before, and `of`, a `study.json`."""
    (folder / STUDY).write_text(study.to_toml(), "utf-8")
    (folder / SUMMARY_FILE).write_text(files.to_json(of), "utf-8")
    (folder / LEDGER).write_text(files.to_json({"schema": 1, **of["ledger"]}), "utf-8")
    release.write(folder, release.form)
    for name, (before, _) in then.items():
        before.write(folder, f"{EARLIER}{name}")
    quarter_page(of).write(folder)
