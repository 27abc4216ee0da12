"""A study of five sites, and a release of it that is made up with the noise of its real plan."""

from typing import Any

import numpy as np

from fedcal.evaluation.score_release import ScoreRelease
from fedcal.experiments.runs.jobs import job_of
from fedcal.experiments.study.quarter import Facts
from fedcal.experiments.study.study_file import Model, Study

SITES = {"alder": 300, "birch": 600, "cedar": 1000, "dog": 2000, "elm": 3000}


def study_of(**more: Any) -> Study:
    """Five hospitals, patients protected, epsilon 4 in four releases."""
    model = Model(("survived", "sepsis"), "SepsisNet", "3.2", thresholds=(0.2,))
    given = {
        "study": "sepsis",
        "model": model,
        "sites": SITES,
        "server": "host.example:9092",
        "question": "Is SepsisNet good at our hospitals, and what do we do next?",
        "contributors": ("A. Alder", "B. Birch"),
    }
    return Study(**given | more)


def release_of(
    study: Study,
    seed: int = 0,
    took_part: tuple[str, ...] = (),
    shift: dict[str, float] | None = None,
    slope: dict[str, float] | None = None,
    times: int = 1,
) -> ScoreRelease:
    """Each site's patients by score and outcome, with noise as of so many answers."""
    from dataclasses import replace

    job = job_of(study.config(), None)
    rng = np.random.default_rng(seed)
    empty = job.strategy().result()
    question, names = empty.question, empty.question.group_names
    took_part = took_part or names
    inner = len(question.within_names) + 1
    cells = np.zeros((len(names), inner, 2, question.buckets))
    for k, (name, rows) in enumerate(study.sites.items()):
        if name not in took_part:
            continue
        n = times * (rows or 500)
        truth = rng.normal(-1.0, 1.5, n)
        if study.score == "confidence":
            truth = np.abs(truth)
        outcome = rng.random(n) < 1 / (1 + np.exp(-truth))
        x = truth / (slope or {}).get(name, 1.0) - (shift or {}).get(name, 0.0)
        score = 1 / (1 + np.exp(-x))
        at = np.clip(
            np.searchsorted(question.bucket_edges, score, "right") - 1, 0, question.buckets - 1
        )
        np.add.at(cells[k], (rng.integers(0, inner, n), outcome.astype(int), at), 1)
    std = float(job.plan.std_of_sum(len(took_part))[0])
    noise = rng.laplace(0.0, std / np.sqrt(2), cells.size)
    found = replace(
        empty,
        counts=np.round(cells.ravel() + noise),
        std=std,
        law="double-exponential",
        known=True,
        data="",
        unit=job.plan.unit,
        counted="subjects",
    )
    found.of_classes(study.classes)
    return found


def facts_of(study: Study, **more: Any) -> Facts:
    """Of the first release of a real run."""
    from fedcal.experiments.runs.statement import of_plan

    job = job_of(study.config(), None)
    plan = job.plan
    said = of_plan(plan, 1, job.secure_aggregation, None, tested=False, noun="release", real=True)
    ledger = {
        "run": "1f",
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "releases": 1,
        "mechanism": plan.mechanism,
        "unit": plan.unit,
        "adjacency": plan.adjacency,
        "event": plan.event,
        "charged": [1],
    }
    given = {
        "name": "2026Q4",
        "date": "2026-12-31",
        "rehearsal": False,
        "took_part": tuple(study.sites),
        "absent": (),
        "spent": study.epsilon_release,
        "left": study.epsilon_total - study.epsilon_release,
        "one_machine": False,
        "statement": tuple(said["statement"]),
        "ledger": ledger,
        "versions": {"fedcal": "0"},
    }
    return Facts(**given | more)


def sealed_of(study: Study, coordinator: Any) -> Any:
    """The study sealed, with new keys of its sites."""
    from fedcal.experiments.study.sealed import Join, Sealed
    from fedcal.secure_aggregation.keys import SigningKey

    joins = [
        Join(
            study.study,
            study.digest,
            site,
            SigningKey.generate().public,
            f"key of {site}",
            study.class_digest,
        )
        for site in study.sites
    ]
    return Sealed.of(study, joins, "PEM", coordinator)
