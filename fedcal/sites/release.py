"""A release of any question but `evaluate`: a run's files, what was sealed, a signature."""

import datetime
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fedcal.core.checks import InputError, integer, same
from fedcal.results import files
from fedcal.results.page import read_json, reading
from fedcal.run import folders
from fedcal.run.result import SimulationResult
from fedcal.secure_aggregation.keys import SigningKey
from fedcal.sites.quarter import SEALED, STUDY, SUMMARY_FILE, QuarterFacts
from fedcal.sites.sealed import Sealed, write_signature
from fedcal.sites.study_file import Study

RECORD = "release.json"
"""Facts of the release that `result.json` does not have."""

_PLANNED = ("unit", "trust", "adjacency", "epsilon", "delta")


def write_result(
    folder: Path,
    study: Study,
    sealed_text: str,
    result: SimulationResult,
    facts: QuarterFacts,
    signer: SigningKey | None,
) -> dict[str, Any]:
    """Write all files of a release, or none; return the content of its `release.json`.

    `sealed_text` is of the sealed study ("" = a rehearsal); without the coordinator's key as
    `signer` it is to be signed later.
    """
    facts.check(study)
    content = {
        "schema": 1,
        "study": study.study,
        "terms": json.loads(study.terms),
        "digest": study.digest,
        "question": study.question.text,
        **asdict(facts),
        "sites": {
            site: {"words": "was away" if site in facts.absent else "took part"}
            for site in study.sites
        },
        "next": [result.verdict],
    }

    def write(draft: Path) -> None:
        result.save(draft)
        (draft / STUDY).write_text(study.to_toml(), "utf-8")
        (draft / RECORD).write_text(files.to_json(content), "utf-8")
        if sealed_text:
            (draft / SEALED).write_text(sealed_text, "utf-8")
        if signer is not None:
            write_signature(draft, signer)

    files.write_folder(folder, write, stale=(*folders.RUN.files, RECORD, SEALED, STUDY))
    return content


def held(folder: Path, sealed: Sealed | None) -> list[str]:
    """Return what holds of such a folder besides its signature, in sentences.

    Raises InputError where facts, privacy or ledger are not what the terms say.
    """
    content, study = read_json(folder / RECORD, "release"), Study.read(folder / STUDY)
    if study.evaluates:
        raise InputError(f"{folder} has {RECORD}: a release by this question has {SUMMARY_FILE}")
    result: Mapping[str, Any] = read_json(folder / folders.RUN.record, "result")
    with reading(folder, RECORD):
        facts = QuarterFacts.of(content)
        facts.check(study)
        same(f"name of the release in {folder}", facts.name, folder.resolve().name)
        same(f"digest of the terms of {folder}", content["digest"], study.digest)
        if sealed is not None:
            study.year(datetime.date.fromisoformat(facts.date))
            same("epsilon of the ledger", facts.ledger.get("epsilon"), study.plan.epsilon)
    with reading(folder, folders.RUN.record):
        same(f"method of {folder}", result["method"], study.question.method)
        privacy, plan = result["privacy"], study.plan
        if facts.rehearsal and plan.mechanism.pure:  # a seed's draws have no errors
            plan = replace(plan, delta=0.0)
        same("mechanism of the release", privacy["mechanism"], plan.mechanism.name)
        for name in _PLANNED:
            same(f"{name} of the release", privacy[name], getattr(plan, name))
        integer("the number of releases", privacy["releases"], 1, plan.rounds)
    return [
        "Method, epsilon, delta, unit and trust of the release are those of the terms.",
        "Not checked: that the numbers and pages of the result follow from its counts.",
    ]


def releases_of(folder: Path, study: str) -> dict[str, str]:
    """Return name -> day of the releases of a study beside its file; rehearsals are left out."""
    found = {}
    for path in sorted((*folder.glob(f"*/{SUMMARY_FILE}"), *folder.glob(f"*/{RECORD}"))):
        content = read_json(path, "release")
        if content.get("study") == study and not content.get("rehearsal"):
            found[path.parent.name] = str(content.get("date"))
    return found
