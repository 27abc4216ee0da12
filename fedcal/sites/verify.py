"""Hold a quarter's folder against itself: signature, roster, ledger, release, and every number.

It takes no data and no server: the release is held against the plan of the sealed study's terms
and the ledger's line, and `study.json` and the report are made again from it.

**Formal guarantee.** With a sealed study of one's own: its coordinator has signed every file;
terms, sites and keys are those sealed, noise and price those of the terms; the folder has no file,
array or header more than `study run` writes; every number of the report follows from release and
facts. Whoever holds the coordinator's key can sign what `UNCHECKED` names, or a false copy of an
earlier quarter that is not beside the folder.
"""

import datetime
import math
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from fedcal import __version__
from fedcal.core import numerics
from fedcal.core.checks import InputError, needed, same
from fedcal.core.naming import printable
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.privacy.making import differences
from fedcal.privacy.noise_plan import Plan
from fedcal.results.labels import sentences
from fedcal.results.page import read_json, reading
from fedcal.results.statement import Facts, of_plan
from fedcal.run.jobs import job_of
from fedcal.run.rereading import read_release
from fedcal.secure_aggregation.keys import SigningKey
from fedcal.secure_aggregation.roster import in_words
from fedcal.sites import quarter
from fedcal.sites.quarter import SUMMARY_FILE, Earlier, QuarterFacts, quarter_summary
from fedcal.sites.release import RECORD, held
from fedcal.sites.sealed import SIGNATURE, Sealed, check_signature, write_signature
from fedcal.sites.study_file import Study, check_file_name
from fedcal.storage.atomic import must_exist

UNCHECKED = (
    "Not checked: that the counts are what the sites sent, absences, the date, what was spent "
    "before, which earlier quarters are compared, the run's name, versions, and that coordinator "
    "and server are apart."
)
_REHEARSAL = "A rehearsal: its rows were one file. Not signed, nor checked: statement and ledger."
_CHANCE = 1e-9
"""Probability that noise alone makes a count of a true release impossible."""

_SPENT = ("epsilon", "delta", "mechanism", "unit", "adjacency", "event")


def verify(folder: Path, own: Path | None = None, signer: SigningKey | None = None) -> list[str]:
    """Return what holds of a release's folder, in sentences, by one's `own` sealed study.

    The coordinator's key as `signer` signs it as it was sealed, once all else holds. Raises
    InputError if something does not hold.
    """
    content, sealed = _read(folder)
    if sealed is None and own is None and signer is None:
        return [_REHEARSAL, *_held(folder, content, None)]
    sealed = needed(f"a seal of {folder}", sealed, "a rehearsal is neither sealed nor signed")
    if signer is None:
        with reading(folder, SIGNATURE):
            check_signature(folder, sealed.coordinator)
    else:
        what = f"key that signs {folder} (by the coordinator that sealed its study)"
        same(what, signer.public.hex(), sealed.coordinator.hex())
    text = Study.read(folder / quarter.STUDY).to_toml()
    same(f"study of {folder}, by what was sealed,", text, sealed.study.to_toml())
    sentences = [_sealed_by(folder, sealed, own), *_held(folder, content, sealed), UNCHECKED]
    if signer is not None:
        write_signature(folder, signer)
    return sentences


def _sealed_by(folder: Path, sealed: Sealed, own: Path | None) -> str:
    """Hold the digest of a quarter's sealed study against that of one's own."""
    words = in_words(sealed.digest)
    if own is None:
        return (
            "Not checked: the coordinator's key. Give your own sealed study (--sealed FILE), or "
            f"compare by telephone with a site: {words}."
        )
    if (mine := Sealed.read(own).digest) != sealed.digest:
        raise InputError(f"{folder} is not sealed as {own} is: {words}; {own}: {in_words(mine)}")
    return f"The coordinator's key, terms, sites and server are those of {own}."


def _read(folder: Path) -> tuple[dict[str, Any], Sealed | None]:
    """Return `study.json`, or `release.json`, and the sealed study; None of a rehearsal."""
    record = RECORD if (folder / RECORD).is_file() else SUMMARY_FILE
    must_exist(folder / record, "it is not the folder of a release, as study run writes it")
    for path in folder.iterdir():
        if path.is_symlink() or not path.is_file():
            raise InputError(f"{path} is not a file of a quarter: delete it")
    content = read_json(folder / record, "release")
    with reading(folder, record):
        return content, None if content["rehearsal"] else Sealed.read(folder / quarter.SEALED)


def _held(folder: Path, content: dict[str, Any], sealed: Sealed | None) -> list[str]:
    """Return what holds besides the signature."""
    if (folder / RECORD).is_file():
        return held(folder, sealed)
    study, release = Study.read(folder / quarter.STUDY), read_release(folder / "release.npz")
    with reading(folder, SUMMARY_FILE):
        facts, since = QuarterFacts.of(content), content["since"]
        same(f"name of the quarter in {folder}", facts.name, folder.resolve().name)
        for name in (facts.name, *since):
            check_file_name(name)
        copies = {name: read_release(folder / f"{quarter.EARLIER}{name}.npz") for name in since}
        earlier = {name: (copies[name], one) for name, one in since.items()}
        for what, *values in _agreed(study, sealed, facts, release, since):
            if not np.array_equal(*values):
                seen, agreed = (" ".join(repr(one).split())[:80] for one in values)
                what = what.replace("_", " ")
                raise InputError(f"{folder}: the {what} is {seen}; by the terms it is {agreed}")
        again = quarter_summary(study, release, facts, earlier)
        for where, old, new in differences("", content, again, 1e-6, 1e-9):
            raise InputError(
                f"{folder / SUMMARY_FILE} says {where} = {old!r:.60}; the release gives "
                f"{new!r:.60} (by fedcal {facts.versions.get('fedcal')}, this is {__version__})"
            )
        sentences = [] if sealed is None else list(_around(folder, sealed, earlier))
        with tempfile.TemporaryDirectory() as draft:
            quarter.write_files(Path(draft), study, release, content, earlier)
            _same_files(folder, Path(draft), {SIGNATURE, quarter.SEALED} if sealed else set())
    return [
        "The release is what the study asks: noise, epsilon and unit are those of the terms.",
        f"All numbers of {SUMMARY_FILE} and of the report follow from it.",
        *sentences,
    ]


def _agreed(
    study: Study, sealed: Sealed | None, facts: QuarterFacts, release: ScoreRelease, since: Any
) -> Iterator[tuple[str, Any, Any]]:
    """Yield pairs of what is found and what the terms demand."""
    job = job_of(study.config(), None)
    plan, made = job.plan, cast(Any, job.strategy().result())
    std = float(plan.std_of_sum(len(facts.took_part))[0])
    yield "release's noise", f"{release.std:.9g}", f"{std:.9g}"
    yield "release's classes", release.class_names, study.classes
    yield "release's impossible counts", _impossible(release, plan, facts)[:3].tolist(), []
    texts = [*facts.versions, *facts.versions.values(), facts.ledger.get("run", "")]
    yield "list of versions", texts, [printable(text)[:80] for text in texts]
    day, paid = datetime.date.fromisoformat(facts.date), facts.spent / study.epsilon_release
    same_terms = all(
        one["digest"] == study.digest for one in since.values()
    )  # else of several prices
    least = max(round(paid) if same_terms else paid, sealed is not None)
    yield "number of releases paid for", f"{paid:.6f}", f"{least:.6f}"
    own = {name: getattr(release, name) for name in ("counts", "std", "input", "known", "data")}
    expected = replace(facts, date=day.isoformat(), roster="", one_machine=False)
    if sealed is not None:
        study.year(day)
        line = {name: getattr(plan, name) for name in _SPENT} | {"run": facts.ledger.get("run")}
        line |= {"mechanism": plan.mechanism.name, "releases": 1, "charged": [1]}
        sites = {"enrolled": len(study.sites), "answered": len(facts.took_part), "missed": {}}
        record = of_plan(plan, 1, job.secure_aggregation, Facts(tested=False, guarded=True))
        record["more"] += sentences({**sites, "absent": list(facts.absent)})
        stated: Any = {name: tuple(record[name]) for name in ("statement", "more")}
        where: Any = {"roster": sealed.roster.digest, "one_machine": sealed.one_machine}
        expected = replace(expected, ledger=line, **where, **stated)
        own["data"] = ""
    yield from differences("", asdict(facts), asdict(expected), 0.0)
    made = made.of_sites({"absent": list(facts.absent)}).under(facts.statement)
    by_terms = replace(made, **own, distribution=plan.noise_distribution(std)).arrays()
    yield from ((f"release's {k}", v, by_terms[k]) for k, v in release.arrays().items())


def _impossible(release: ScoreRelease, plan: Plan, facts: QuarterFacts) -> numerics.Floats:
    """Return counts that no sum of a run decodes to: off its grid, or beyond what noise does.

    Rows are not negative, and an absent site has none. Of noise with the log K of its moment
    generating function, P(X > x std) <= exp(K(t) - t x) for each t.
    """
    counts, noise = release.counts, plan.noise_distribution(release.std)
    t = np.linspace(0.01, 0.99, 99) * noise.limit
    most = release.std * ((math.log(len(counts) / _CHANCE) + noise.log_moments(t)[0]) / t).min()
    names = release.question.group_names
    away = np.isin(names, facts.absent).repeat(len(counts) // len(names))
    is_sum = np.rint(counts / plan.grid) * plan.grid == counts
    return np.asarray(counts[~is_sum | (counts < -most) | (away & (counts > most))])


def _around(folder: Path, sealed: Sealed, earlier: Mapping[str, Earlier]) -> Iterator[str]:
    """Hold copies of earlier quarters against folders beside this one; say what is as it is."""
    beside = quarter.earlier_of(folder, sealed.study)
    for name, (copy, then) in earlier.items():
        if name not in beside:
            yield f"{name} is not beside this folder: changes since then are not verified."
            continue
        (release, content), there = beside[name], folder.resolve().parent / name
        if signed := (there / SIGNATURE).exists():
            check_signature(there, sealed.coordinator)
        arrays, expected, file = copy.arrays(), release.arrays(), f"{quarter.EARLIER}{name}.npz"
        same = all(then[key] == content[key] for key in quarter.KEPT)
        if not same or not all(np.array_equal(arrays[key], expected[key]) for key in expected):
            raise InputError(f"{folder / file} is not the release of {there}")
        yield f"{file} is the release of {name}/ beside it{'' if signed else ', not signed'}."


def _same_files(folder: Path, draft: Path, but: set[str]) -> None:
    """InputError if a file differs from what follows from `study.json`, is missing, or is more."""
    made, own = ({path.name: path for path in files.iterdir()} for files in (draft, folder))
    for name in sorted({*made, *own} - but):
        if name not in made or name not in own or _inside(own[name]) != _inside(made[name]):
            raise InputError(
                f"{folder / name} is not what fedcal {__version__} makes of {SUMMARY_FILE}: it was "
                f"altered or added, or made by other versions (fedcal report {folder} makes pages "
                "again)"
            )


def _inside(path: Path) -> Any:
    """Return the bytes of a file; of an archive its members, and how long all else is."""
    if path.suffix != ".npz":
        return path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        more = path.stat().st_size - sum(member.compress_size for member in members)
        return more, [(member.filename, archive.read(member)) for member in members]
