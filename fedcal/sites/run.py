"""One release of a study: over its sites, or of a file before anybody is asked."""

import datetime
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedcal.core.checks import InputError, needed, same
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.privacy.ledger import Entry, Ledger
from fedcal.results.files import versions
from fedcal.results.labels import STUDY
from fedcal.run.result import SimulationResult, recorded, result_of
from fedcal.run.simulation import simulate
from fedcal.secure_aggregation.keys import SigningKey, read_key
from fedcal.sites import kits, quarter
from fedcal.sites.release import releases_of, write_result
from fedcal.sites.rows import read_rows
from fedcal.sites.sealed import SEALED, Sealed
from fedcal.sites.server_run import SERVER, carried_out
from fedcal.sites.study_file import Study, check_file_name
from fedcal.storage.artifact import OUTCOME
from fedcal.storage.atomic import must_exist, must_not_exist
from fedcal.strategies.server.outcome import Progress


def rehearse(path: Path, name: str, data: str, *, seed: int = 0) -> dict[str, Any]:
    """Rehearse a release on one file with the rows of all sites; no site is contacted.

    The seed draws the noise. Returns what `study.json` of the folder `name` beside the study's file
    holds; raises InputError if the rows are not as the study wants them, or the folder holds
    something else.
    """
    out, study = _folder(path, name), Study.read(path)
    if study.trains:
        raise InputError(f"{path} trains a model: fedcal train rehearses it")
    rows, notes = read_rows(data, study.classes)
    for note in notes:
        warnings.warn(f"{data}: {note}", stacklevel=2)
    if study.protect != "record":
        needed(f"a column subject of {data}", rows.subject, f"the study protects {study.plural}")
    names = sorted(rows.client_names or ())
    same(f"sites in the column client of {data}", names, sorted(study.sites))
    config = study.config(partition="natural", seed=seed)
    result = simulate(rows, config=replace(config, data=rows.name))
    return _written(out, study, "", result, _facts(name, result, study), None)


def _written(
    out: Path,
    study: Study,
    sealed_text: str,
    result: SimulationResult,
    facts: quarter.QuarterFacts,
    signer: SigningKey | None,
) -> dict[str, Any]:
    """Write a release's folder: the report on each site, or the files of any run."""
    if isinstance(result.artifact, ScoreRelease) and study.evaluates:
        earlier = {} if facts.rehearsal else quarter.earlier_of(out, study)
        what = sealed_text or study.to_toml()
        return quarter.write_quarter(out, study, what, result.artifact, facts, earlier, signer)
    return write_result(out, study, sealed_text, result, facts, signer)


def _facts(
    name: str,
    result: SimulationResult,
    study: Study,
    book: Sequence[Entry] | None = None,
    run: str = "",
    one_machine: bool = False,
    made: float | None = None,
) -> quarter.QuarterFacts:
    """Return the facts beside a run's release; `book` has the ledger's year, None = rehearsed."""
    absent, spent = (result.sites or {"absent": []})["absent"], sum(e.epsilon for e in book or ())
    own = [{**vars(e), "charged": [*e.charged]} for e in book or () if e.run == run]
    return quarter.QuarterFacts(
        name=name,
        date=datetime.datetime.fromtimestamp(made or time.time(), datetime.UTC).date().isoformat(),
        took_part=tuple(site for site in study.sites if site not in absent),
        absent=tuple(absent),
        spent=spent,
        left=max(study.epsilon - spent, 0.0),
        statement=tuple(result.privacy["statement"]),
        more=tuple(result.privacy["more"]),
        ledger=own[0] if own else {},
        versions=versions(),
        rehearsal=book is None,
        one_machine=one_machine,
    )


def question_before(path: Path, name: str) -> str:
    """Return what to ask a person before a second release in one month; "" = nothing.

    Sites may have no new rows yet. A release that goes on is no second one.
    """
    study = Sealed.read(path.with_suffix(SEALED)).study
    month = f"{datetime.datetime.now(datetime.UTC):%Y-%m}"
    released = releases_of(path.parent, study.study)
    recent = [one for one, day in released.items() if day.startswith(month)]
    begun = kits.folder_of(path, study.study, "server") / "runs" / name / SERVER
    if not recent or begun.exists():
        return ""
    cost = f"{name} costs epsilon {study.epsilon_release:g}"
    return f"{recent[-1]} was released this month, and {cost}: have the sites new rows?"


def release(
    path: Path, name: str, *, without_unready: bool = False, progress: Progress | None = None
) -> dict[str, Any]:
    """One release over the sites of a sealed study, on the server's machine.

    A run that was interrupted goes on, and is charged once; one that has its report is refused.

    `path` is that of the study's file or of the sealed one, `name` of the folder beside it;
    `without_unready` goes on without sites that say that they cannot take part. Returns what
    `study.json` holds.

    Raises
    ------
    InputError
        The study is not sealed or was changed since, no server runs, or the name is taken.
    FedcalError
        As `carried_out`.
    """
    sealed_path = path.with_suffix(SEALED)
    why = "fedcal study seal makes it of the sites' .join files; --rehearse ROWS needs none"
    must_exist(sealed_path, why)
    sealed, out = Sealed.read(sealed_path), _folder(path, name)
    study = sealed.study
    if path != sealed_path:
        same(f"study of {path} (seal it anew)", Study.read(path).to_toml(), study.to_toml())
    key = kits.folder_of(path, study.study, "coordinator") / kits.KEY
    if not sealed.one_machine:
        why = f"by {sealed_path} it is not on the server's machine. Move it to another one"
        must_not_exist(key, f"{why}, and sign there (fedcal study verify --key)")
    home = kits.folder_of(path, study.study, "server").resolve()
    why = f"no server runs here. fedcal study serve {sealed_path} starts it"
    file = must_exist(home / kits.CONTROL, why)
    at = file.read_text("ascii").strip()
    work, year = home / "runs" / name, study.year(datetime.datetime.now(datetime.UTC).date())
    ledger = home / f"ledger-{year}.sqlite"
    books = {"ledger": str(ledger), "cap": study.epsilon}
    books["cap_delta"] = study.delta_release * study.per_year
    config = study.config(engine=STUDY, **books)
    job = study.job(sealed.roster, **books)
    options: Any = {"without_unready": without_unready, "progress": progress}
    outcome = carried_out(job, work, at, home / "ca.crt", **options)
    known, privacy = recorded(config, job, outcome, tested=False)
    result = result_of(outcome, known, privacy, given=config, test=None, data=None)
    made = (work / SERVER / OUTCOME).stat().st_mtime
    with Ledger(ledger) as book:
        entries = book.entries()
    facts = _facts(name, result, study, entries, outcome.run, sealed.one_machine, made)
    signer = read_key(key) if key.exists() else None
    return _written(out, study, sealed_path.read_text("utf-8"), result, facts, signer)


def _folder(path: Path, name: str) -> Path:
    check_file_name(name)
    out = path.parent / name
    if out.is_dir() and any(out.iterdir()):
        raise InputError(f"{out} holds a report, or something else: choose another name")
    return out
