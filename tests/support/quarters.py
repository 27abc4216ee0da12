"""Quarters of a study of five sites: releases that are made up with the noise of its real plan."""

from dataclasses import asdict, replace

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from studies import study

from fedcal.privacy.ledger import Entry
from fedcal.results.files import versions
from fedcal.results.labels import sentences
from fedcal.results.statement import Facts, of_plan
from fedcal.run.jobs import job_of
from fedcal.secure_aggregation.keys import SigningKey
from fedcal.sites.quarter import QuarterFacts, write_quarter
from fedcal.sites.sealed import Join, Sealed

SITES = "alder=300,birch=600,cedar=1000,dog=2000,elm=3000"


def hospitals(**more):
    model = {"name": "SepsisNet", "version": "3.2"} | more.pop("model", {})
    if "classes" not in more:
        model = {"thresholds": (0.2,)} | model
    return study(**{"sites": SITES, "question": "Is it good?", "model": model} | more)


def release_of(of, seed=0, took_part=(), shift=(), slope=()):
    """Patients of each site by score and outcome; `shift` and `slope` are faults of some."""
    rng, rows = np.random.default_rng(seed), {}
    for site, about in of.sites.items():
        n = (about or 500) * (site in (took_part or of.sites))
        truth = rng.normal(-1.0, 1.5, n)
        truth = np.abs(truth) if of.score == "confidence" else truth
        y = rng.random(n) < 1 / (1 + np.exp(-truth))
        rows[site] = truth / dict(slope).get(site, 1.0) - dict(shift).get(site, 0.0), y
    return release_of_rows(of, rows, rng, took_part)


def release_of_rows(of, rows, rng, took_part=()):
    """Of the log odds and outcomes of each site's patients, with the noise of the real plan."""
    job = job_of(of.config(), None)
    empty = job.strategy().result()
    question, took_part = empty.question, took_part or tuple(of.sites)
    cells = np.zeros((len(of.sites), len(question.within_names) + 1, 2, question.buckets))
    for own, (x, y) in zip(cells, rows.values(), strict=True):
        at = np.searchsorted(question.bucket_edges[1:-1], 1 / (1 + np.exp(-x)), "right")
        np.add.at(own, (rng.integers(0, len(own), len(x)), y.astype(int), at), 1)
    std = float(job.plan.std_of_sum(len(took_part))[0])
    counts = np.round(cells.ravel() + rng.laplace(0.0, std / np.sqrt(2), cells.size))
    facts = {
        "distribution": job.plan.noise_distribution(std),
        "known": True,
        "unit": job.plan.unit,
        "data": "",
    }
    found = replace(empty, counts=counts, std=std, **facts)
    found.of_classes(of.classes)
    return found


def facts_of(of, **more):
    """Of the first release of a real run."""
    job = job_of(of.config(), None)
    plan = job.plan
    kinds = (plan.mechanism.name, plan.unit, plan.adjacency, plan.event)
    line = asdict(Entry("run", plan.epsilon, plan.delta, 1, *kinds, (1,)))
    facts = {
        **{"name": "2026Q4", "date": "2026-12-31", "rehearsal": False, "one_machine": False},
        **{"took_part": tuple(of.sites), "absent": (), "versions": versions()},
        **{"spent": of.epsilon_release, "left": of.epsilon - of.epsilon_release},
        "ledger": line | {"charged": [1]},
    }
    facts |= more
    sites = {"enrolled": len(of.sites), "answered": len(facts["took_part"]), "missed": {}}
    output = of_plan(plan, 1, job.secure_aggregation, Facts(tested=False, guarded=True))
    more = (*output["more"], *sentences({**sites, "absent": facts["absent"]}))
    facts |= {"statement": tuple(output["statement"]), "more": more}
    return QuarterFacts(**facts)


def connection(site):
    """A public key as sites send it."""
    key = ec.generate_private_key(ec.SECP384R1()).public_key()
    return f"{key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()} {site}"


def sealed_of(of, coordinator, one_machine=False):
    def join(site):
        key = SigningKey.generate().public
        return Join(of.study, of.digest, site, key, connection(site))

    sealed = Sealed.of(of, map(join, of.sites), "PEM", coordinator)
    return replace(sealed, one_machine=one_machine).to_text(coordinator)


def quarter(folder, of, key, *, earlier=(), signer=None, faults=None, **facts):
    """A quarter in a folder of the name that the facts have: its release, and its study.json."""
    known = facts_of(of, name=folder.name, **facts)
    release = release_of(of, len(folder.name), known.took_part, **(faults or {}))
    release = release.of_sites({"absent": known.absent}).under(known.statement)
    release.of_classes(of.classes)
    if known.rehearsal:
        release = replace(release, data="rows.csv")
        release.of_classes(of.classes)
    text = of.to_toml() if known.rehearsal else sealed_of(of, key, known.one_machine)
    return release, write_quarter(folder, of, text, release, known, dict(earlier), signer)
