"""Hold a quarter's folder against itself: signature, roster, ledger, release, and every number.

It takes the folder alone, no data and no server: the release is held against the plan of the
sealed study's terms and the ledger's line, and `study.json` and the report are computed again from
it. So a report that was altered is refused, whoever has signed it again.
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
from fedcal.experiments.report.figures import CURVE_NAMES
from fedcal.experiments.report.page import FILE, read_json, reading
from fedcal.experiments.runs.jobs import job_of
from fedcal.experiments.runs.rereading import read_release
from fedcal.experiments.runs.statement import of_plan
from fedcal.experiments.study.quarter import (
    EARLIER,
    LEDGER,
    SEALED,
    SIGNATURE,
    SIGNED,
    STUDY,
    TOLD,
    Facts,
    hashes_of,
    told_of,
    write_signature,
)
from fedcal.experiments.study.quarter_page import write_quarter_page
from fedcal.experiments.study.sealed import Sealed, signing_text
from fedcal.experiments.study.study_file import Study
from fedcal.secure_aggregation import keys
from fedcal.secure_aggregation.keys import SigningKey

_CLOSE = {"rtol": 1e-6, "atol": 1e-9}
"""Two machines may differ by so much in a number."""

_ASKED = ("question", "edges", "threshold", "estimand", "spread", "exact", "counted")
_SPENT = ("epsilon", "mechanism", "unit", "adjacency")


def verify(folder: Path) -> list[str]:
    """Verify a quarter.

    Returns
    -------
    list[str]
        what was verified, in sentences

    Raises
    ------
    InputError
        One line that says what does not hold.
    """
    told, sealed = _read(folder)
    if sealed is None:
        return [
            "It is a rehearsal: its rows were one file, and nobody has signed it.",
            *_held(folder),
        ]
    if not (folder / SIGNATURE).exists():
        raise InputError(
            f"{folder} is not signed: fedcal study sign {folder} --key coordinator.pem"
        )
    fields = read_json(folder / SIGNATURE, "signature")
    with reading(folder, SIGNATURE):
        made = bytes.fromhex(fields["signature"])
        text = keys.digest(SIGNED, signing_text(fields))
        files = dict(fields["files"])
    if not keys.verified(sealed.coordinator, SIGNED, text, made):
        raise InputError(f"{folder / SIGNATURE} is not of the coordinator that {SEALED} names")
    now = hashes_of(folder)
    for name in sorted({*files, *now}):
        if files.get(name) != now.get(name):
            raise InputError(f"{folder / name} is not the file that was signed")
    return [
        f"The coordinator {sealed.coordinator.hex()[:16]} signed {len(now)} files.",
        *_held(folder),
    ]


def sign(folder: Path, key: SigningKey) -> list[str]:
    """Sign a quarter, once all else holds; InputError as `verify`, or for another's key."""
    _, sealed = _read(folder)
    if sealed is None or sealed.coordinator != key.public:
        raise InputError(f"{folder}: only a quarter is signed, by the coordinator that sealed it")
    said = _held(folder)
    write_signature(folder, key)
    return said


def _read(folder: Path) -> tuple[Mapping[str, Any], Sealed | None]:
    """`study.json`, and the sealed study; None of a rehearsal."""
    told = read_json(folder / TOLD, "quarter")
    with reading(folder, TOLD):
        return told, None if told["rehearsal"] else Sealed.read(folder / SEALED)


def _held(folder: Path) -> list[str]:
    """Verify all but the signature."""
    told, sealed = _read(folder)
    study = Study.read(folder / STUDY)
    if sealed and (study.digest != sealed.study.digest or told["roster"] != sealed.digest):
        raise InputError(
            f"{folder}: {TOLD} or {STUDY} is of other terms or of another roster than {SEALED}"
        )
    release = read_release(folder / "release.npz")
    with reading(folder, TOLD):
        facts = Facts.of(told)
        earlier = {
            name: (read_release(folder / f"{EARLIER}{name}.npz"), one)
            for name, one in told["since"].items()
        }
        _check_plan(folder, study, facts, release)
        if read_json(folder / LEDGER, "line of a ledger") != {"schema": 1, **facts.ledger}:
            raise InputError(f"{folder / LEDGER} is not the line that {TOLD} has")
        said = list(_beside(folder, earlier))
        again = told_of(study, release, facts, earlier)
        for where, old, new in _differences("", told, again):
            raise InputError(
                f"{folder / TOLD} says {where} = {old!r:.60}; the release gives {new!r:.60}"
            )
        said += _check_page(folder, told)
    roster = f", of the roster {told['roster'][:16]}" if sealed else ""
    other = f"; it was made by fedcal {facts.versions.get('fedcal')}, this is {__version__}"
    return [
        f"The release is what the study {study.study} asks{roster}: its noise, epsilon and unit are "
        "those of the plan" + " and of the ledger's line" * bool(facts.ledger) + ".",
        f"All numbers of {TOLD} follow from it{other * (facts.versions.get('fedcal') != __version__)}.",
        *said,
    ]


def _check_plan(folder: Path, study: Study, facts: Facts, release: ScoreRelease) -> None:
    """InputError unless release, ledger line and statement are of the plan of the terms."""
    job = job_of(study.config(), None)
    plan, found = job.plan, release.arrays()
    for name, wanted in job.strategy().result().arrays().items():
        same = name not in _ASKED or (
            np.allclose(found[name], wanted) if name == "edges" else str(found[name]) == str(wanted)
        )
        if not same:
            raise InputError(f"{folder}: the release has another {name} than the study asks")
    std = float(plan.std_of_sum(len(facts.took_part))[0])
    for what, one, other in (
        ("noise", release.std, std),
        ("unit", release.unit, plan.unit),
        ("classes", release.class_names, study.classes),
    ):
        if one != other and not (what == "noise" and np.isclose(release.std, std)):
            raise InputError(f"{folder}: the release's {what} {one!r} is not the plan's {other!r}")
    line = facts.ledger
    if not facts.rehearsal:
        promised = of_plan(
            plan, 1, job.secure_aggregation, None, tested=False, noun="release", real=True
        )
        if lost := set(promised["statement"]) - {*facts.statement}:
            raise InputError(f"{folder}: its statement lacks {min(lost)!r:.120}")
        if not line:
            raise InputError(f"{folder}: it has no line of a ledger")
    for name in _SPENT if line else ():
        if line.get(name) != getattr(plan, name):
            raise InputError(
                f"{folder}: the ledger's {name} {line.get(name)!r} is not the plan's {getattr(plan, name)!r}"
            )


def _beside(folder: Path, earlier: Mapping[str, Any]) -> Iterator[str]:
    """Hold copies of earlier releases against the folders beside this one."""
    for name in earlier:
        there = folder.resolve().parent / name
        if not (there / TOLD).is_file():
            yield f"{name}/ is not beside it: its copy here was taken as it is."
            continue
        then, _ = _read(there)
        kept, copy = read_release(there / "release.npz"), earlier[name][0]
        same = all(then[k] == v for k, v in earlier[name][1].items() if k in then and k != "sites")
        if not same or not np.array_equal(kept.counts, copy.counts):
            raise InputError(f"{folder / f'{EARLIER}{name}.npz'} is not the release of {there}")
        yield f"{EARLIER}{name}.npz is the release of {name}/ beside it."


def _differences(where: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """Where two values of JSON differ, in dots."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            yield from _differences(f"{where}.{key}".lstrip("."), old.get(key), new.get(key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for k, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _differences(f"{where}.{k}", one, other)
    elif type(old) is type(new) is float:
        if not np.isclose(old, new, **_CLOSE):
            yield where, old, new
    elif type(old) is not type(new) or old != new:
        yield where, old, new


def _check_page(folder: Path, told: Mapping[str, Any]) -> list[str]:
    """Draw the report again from `study.json`; InputError if a file differs."""
    with tempfile.TemporaryDirectory() as draft:
        write_quarter_page(Path(draft), told)
        for path in sorted(Path(draft).iterdir()):
            own = folder / path.name
            if not own.is_file() or own.read_bytes() != path.read_bytes():
                raise InputError(
                    f"{own} is not what fedcal {__version__} makes of {TOLD} (it was made with "
                    f"{told['versions']}): fedcal report {folder} writes it again, to be signed anew"
                )
        drawn = {path.name for path in Path(draft).iterdir()}
    if strange := {p.name for n in CURVE_NAMES for p in folder.glob(n)} - drawn:
        raise InputError(f"{folder / min(strange)} is no figure of this report")
    return [f"{FILE} and its figures say the same."]
