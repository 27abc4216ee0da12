"""The file of a study: read as written, refused in one line, and what follows from it."""

import datetime
from dataclasses import replace

import numpy as np
import pytest
from refusals import refused
from studies import TODAY, study

from fedcal.metrics.score_table import BELOW_HALF, bucket_of
from fedcal.run.jobs import job_of
from fedcal.sites.study_file import Study, StudyQuestion


def test_a_file_reads_as_it_was_written():
    one = study(
        model={"thresholds": (0.1, 0.5), "positive": "survived", "rate": 0.1, "name": 'A "b" \\'},
        groups=("f, g", "Ü"),
        protect="customer",
        years=2,
    )
    again = Study.from_text(one.to_toml())
    assert again.to_toml() == one.to_toml()
    assert again.digest == one.digest
    assert again.classes == ("sepsis", "survived")  # of two the positive one is last
    assert (again.quorum, again.colluding, again.unit) == (4, 1, "subject")
    assert (again.epsilon_release, again.epsilon_total) == (1.0, 8.0)
    assert again.year(TODAY) == 1
    assert again.year(again.until) == 2
    refused("not on", again.year, TODAY - datetime.timedelta(1))


def test_what_binds_changes_the_digest_and_what_does_not_does_not():
    one = study()
    for same in ({"question": StudyQuestion("?")}, {"server": "other:1"}):
        assert replace(one, **same).digest == one.digest
    assert study("alder=1,birch,cedar,dogwood,elm").digest == one.digest
    changed = (
        {"epsilon": 5.0},
        {"per_year": 3},
        {"years": 2},
        {"groups": ("f",)},
        {"missing": 0.1},
        {"away": 2},
        {"colluding": 0},
        {"protect": "person"},
        {"since": TODAY + datetime.timedelta(1)},
        *({"question": StudyQuestion(**q)} for q in ({"method": "fednewton"}, {"rounds": 1})),
        *({"model": replace(one.model, **m)} for m in ({"version": "2"}, {"thresholds": (0.2,)})),
    )
    assert len({replace(one, **each).digest for each in changed} | {one.digest}) == 14


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ('study = "a b"', "letters, digits"),
        ('server = "host"', "HOST:PORT"),
        ('server = "h\\u202eost:9092"', "HOST:PORT"),
        ('server = "--x:9092"', "HOST:PORT"),
        ("since = 2026-10-01T00:00:00Z", "since must be a day"),
        ("since = 9999-12-31", "year of since"),
        ("epsilon = 400.0", r"in \(0, 20\], got"),
        ("colluding = 3", "colluding"),
        ("points = [0.2, 0.1]", "distance of points"),
        (f"points = {[k / 50 for k in range(1, 41)]}", "number of points"),
        ('quorum = "x"', "unknown key of a study"),
    ],
)
def test_what_cannot_be_is_one_line(change, word):
    name = change.partition(" ")[0]
    lines = study().to_toml().splitlines()
    place = next((k for k, line in enumerate(lines) if line.startswith(f"{name} =")), None)
    if place is None:
        lines.insert(0, change)
    else:
        lines[place] = change
    refused(word, Study.from_text, "\n".join(lines))


def test_a_value_in_place_of_a_table_is_one_line():
    rest = 'study = "s"\nserver = "h:1"\nmodel = 3\n[sites]\na = 0'
    refused("^model must be a table, got 3$", Study.from_text, rest)
    rest = "question = {settings = {x = 2026-10-01}}\n" + rest
    refused("^settings.x must be a value, got ", Study.from_text, rest)


def test_cuts_are_those_of_the_least_noise_and_the_thresholds():
    plain, two = study().cuts, study(model={"thresholds": (0.1, 0.5)}).cuts
    assert len(plain) == len(two) == 11
    assert set(two) - set(plain) == {0.1}
    assert len(study(model={"thresholds": (0.55, 0.58)}).cuts) == 12  # only one is near a cut
    assert study(classes=("a", "b", "c")).cuts[-1] > 0.9999


def test_each_point_of_a_model_has_a_bucket_of_its_own():
    points, at = (0.02, 0.11, 0.2, 0.5, 0.68), (0.2, 0.5)
    for of in (study(model={"points": points}), study(model={"points": points, "thresholds": at})):
        edges = np.array([0.0, *of.cuts, 1.0])
        own = bucket_of(np.where(np.array(points) == 0.5, BELOW_HALF, points), edges)
        assert len({*own}) == 5
        assert np.diff(edges)[own].max() < 3e-6
        assert {*of.model.thresholds, 0.5} < {*of.cuts}
        assert of.digest != replace(of, model=replace(of.model, points=())).digest
        assert Study.from_text(of.to_toml()).cuts == of.cuts
        job_of(of.config(), None)


@pytest.mark.parametrize("sites", ["a,b", "a,b,c", ",".join(map(str, range(20)))])
@pytest.mark.parametrize("classes", [("no", "yes"), ("x", "y", "z")])
def test_the_release_that_follows_can_be_planned(sites, classes):
    one = study(sites, classes, groups=("f",) if len(classes) == 2 else ())
    job = job_of(one.config(), None)
    assert job.plan.quorum == one.quorum
    assert job.plan.epsilon == one.epsilon_release
    (asked,) = job.strategy().questions()
    np.testing.assert_allclose(asked.fixed["edges"], [0.0, *one.cuts, 1.0])
