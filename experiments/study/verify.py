"""Hold a quarter's folder against itself: signature, roster, ledger, release, and every number.

It takes no data and no server: the release is held against the plan of the sealed study's terms
and the ledger's line, and `study.json` and the report are made again from it. So a report that was
altered is refused, whoever has signed it again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedcal import __version__
from fedcal.core.errors import InputError
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.experiments.report.page import read_json, reading
from fedcal.experiments.runs.jobs import job_of
from fedcal.experiments.runs.rereading import read_release
from fedcal.experiments.runs.statement import of_plan
from fedcal.experiments.study import quarter
from fedcal.experiments.study.quarter import TOLD, Facts, told_of
from fedcal.experiments.study.quarter_page import write_quarter_page
from fedcal.experiments.study.sealed import Sealed
from fedcal.experiments.study.signature import SIGNATURE, check_signature, write_signature
from fedcal.experiments.study.study_file import Study
from fedcal.secure_aggregation.keys import SigningKey
from fedcal.strategies.server import participation

_ASKED = ("question", "edges", "threshold", "estimand", "spread", "exact", "counted")
_SPENT = ("epsilon", "delta", "mechanism", "unit", "adjacency", "event")


def verify(folder: Path) -> list[str]:
    """What was verified of a quarter, in sentences; InputError, one line, if it does not hold."""
    _, sealed = _read(folder)
    if sealed is None:
        return ["A rehearsal: its rows were one file, and nobody has signed it.", *_held(folder)]
    check_signature(folder, sealed.coordinator)
    return [f"The coordinator {sealed.coordinator.hex()[:16]} has signed it.", *_held(folder)]


def sign(folder: Path, key: SigningKey) -> list[str]:
    """Sign a quarter once all else is verified; InputError likewise, or for another's key."""
    _, sealed = _read(folder)
    if sealed is None or sealed.coordinator != key.public:
        why = "by the coordinator that sealed its study, or not at all"
        raise InputError(
            f"{folder} is " + (f"signed {why}" if sealed else "a rehearsal: not signed")
        )
    said = _held(folder)
    write_signature(folder, key)
    return said


def _read(folder: Path) -> tuple[Mapping[str, Any], Sealed | None]:
    """`study.json`, and the sealed study; None of a rehearsal."""
    if not (folder / TOLD).is_file():
        raise InputError(f"{folder} is no folder of a quarter (as study run writes it): no {TOLD}")
    told = read_json(folder / TOLD, "quarter")
    with reading(folder, TOLD):
        return told, None if told["rehearsal"] else Sealed.read(folder / quarter.SEALED)


def _held(folder: Path) -> list[str]:
    """All but the signature."""
    told, sealed = _read(folder)
    study, release = Study.read(folder / quarter.STUDY), read_release(folder / "release.npz")
    with reading(folder, TOLD):
        facts, earlier = Facts.of(told), dict[str, quarter.Earlier]()
        for name, one in told["since"].items():
            if Path(name).name != name:
                raise InputError(f"{folder / TOLD}: {name!r:.80} is no name of a quarter")
            earlier[name] = read_release(folder / f"{quarter.EARLIER}{name}.npz"), one
        for what, found, wanted in _agreed(study, sealed, facts, release):
            if not np.array_equal(found, wanted):
                raise InputError(
                    f"{folder}: the {what} is {found!r:.80}; by the terms it is {wanted!r:.80}"
                )
        if read_json(folder / quarter.LEDGER, "line of a ledger") != {"schema": 1, **facts.ledger}:
            raise InputError(f"{folder / quarter.LEDGER} is not the line that {TOLD} has")
        by = facts.versions.get("fedcal")
        other = "" if by == __version__ else f" It was made by fedcal {by}, this is {__version__}."
        again = told_of(study, release, facts, earlier)
        for where, old, new in _differences("", told, again):
            found = f"says {where} = {old!r:.60}; the release gives {new!r:.60}.{other}"
            raise InputError(f"{folder / TOLD} {found}")
        said = [_beside(folder, name, *one) for name, one in earlier.items()]
        _check_page(folder, told)
    terms = "The release is what the study asks: noise, epsilon and unit are those of the terms."
    return [terms, f"All numbers of {TOLD} and of the report follow from it.{other}", *said]


def _agreed(
    study: Study, sealed: Sealed | None, facts: Facts, release: ScoreRelease
) -> Iterator[tuple[str, Any, Any]]:
    """What is found, and what the terms make of it."""
    job = job_of(study.config(), None)
    plan, found, wanted = job.plan, release.arrays(), job.strategy().result().arrays()
    yield from ((f"release's {name}", found[name], wanted[name]) for name in _ASKED)
    std = float(plan.std_of_sum(len(facts.took_part))[0])
    yield "release's noise", f"{release.std:.9g}", f"{std:.9g}"
    yield "release's unit", release.unit, plan.unit
    yield "release's classes", release.class_names, study.classes
    if sealed is not None:
        yield "digest of the terms", study.digest, sealed.study.digest
        yield "digest of the roster", facts.roster, sealed.digest
        for name in _SPENT:
            yield f"ledger's {name}", facts.ledger.get(name), getattr(plan, name)
        yield "ledger's list of releases", facts.ledger.get("charged"), [1]
        of = of_plan(plan, 1, job.secure_aggregation, None, tested=False, real=True)["statement"]
        sites = {"enrolled": len(study.sites), "answered": len(facts.took_part), "missed": {}}
        of += participation.sentences({**sites, "absent": list(facts.absent)})
        yield "statement", list(facts.statement), of


def _differences(where: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """Where two values of JSON differ, in dots; another machine may differ in the last digits."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            yield from _differences(
                f"{where}.{key or 'all'}".lstrip("."), old.get(key), new.get(key)
            )
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for k, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _differences(f"{where}.{k}", one, other)
    elif isinstance(old, float) and isinstance(new, float):
        if not np.isclose(old, new, rtol=1e-6, atol=1e-9):
            yield where, old, new
    elif type(old) is not type(new) or old != new:
        yield where, old, new


def _beside(folder: Path, name: str, copy: ScoreRelease, then: Mapping[str, Any]) -> str:
    """Hold the copy of an earlier release against the folder beside this one."""
    there = folder.resolve().parent / name
    if not (there / TOLD).is_file():
        return f"{name}/ is not beside it: its copy here was taken as it is."
    told, sealed = _read(there)
    if sealed is not None and (there / SIGNATURE).exists():
        check_signature(there, sealed.coordinator)
    same = all(told.get(key) == value for key, value in then.items() if key in quarter.KEPT)
    if not same or not np.array_equal(read_release(there / "release.npz").counts, copy.counts):
        raise InputError(f"{folder / f'{quarter.EARLIER}{name}.npz'} is not the release of {there}")
    return f"{quarter.EARLIER}{name}.npz is the release of {name}/ beside it."


def _check_page(folder: Path, told: Mapping[str, Any]) -> None:
    """Make the report again from `study.json`; InputError if a file differs."""
    with tempfile.TemporaryDirectory() as draft:
        write_quarter_page(Path(draft), told)
        for path in sorted(Path(draft).iterdir()):
            own = folder / path.name
            if not own.is_file() or own.read_bytes() != path.read_bytes():
                raise InputError(
                    f"{own} is not what fedcal {__version__} makes of {TOLD}: it was altered, or "
                    f"made with other versions ({told['versions']}); fedcal report {folder} writes "
                    "it again, to be signed anew"
                )
