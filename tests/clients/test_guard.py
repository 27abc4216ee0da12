"""What a site checks before it answers, and that it answers once."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcal.bounding import Bound
from fedcal.classes import digest_of
from fedcal.clients import guard
from fedcal.clients.guard import Answers
from fedcal.clients.prepared import Prepared, prepare, prepared
from fedcal.errors import FedcalError, InputError
from fedcal.mechanisms import Noise
from fedcal.privacy import Federation
from fedcal.queries import ClassHistograms, ScoreCell
from fedcal.queries.request import Context, Request
from fedcal.secure_aggregation import Ring
from fedcal.shards import Shards
from fedcal.strategies import FedBin
from fedcal.strategies.job import Job, plan_of_job
from fedcal.types import Words

FEDERATION = Federation(5, 2, epsilon=1.0, trust="distributed", noise_source="system")
FIELDS: dict[str, Any] = Job("fedbin", FEDERATION).to_fields()
ROWS = Shards.from_owner(
    np.linspace(-1, 1, 12).reshape(6, 2), np.array([0, 1] * 3), np.zeros(6, np.int64), 1
)


def check(fields: dict[str, Any], request: Request, site: Prepared) -> Request:
    return guard.check(fields, request, site, plan_of_job)


def asked(federation: Federation = FEDERATION) -> Request:
    opened = FedBin(federation).open_round(1)
    assert opened is not None
    return opened.request


@pytest.fixture
def site(tmp_path: Path) -> Prepared:
    prepare(tmp_path / "site", ROWS, names=["healthy", "disease"])
    return prepared(tmp_path / "site")


# --- what is checked ----------------------------------------------------------------------------


def test_an_honest_request_passes(site: Prepared) -> None:
    request = asked()
    assert check(FIELDS, request, site) == request
    known = {**FIELDS, "classes": 0, "class-digest": digest_of(["healthy", "disease"])}
    again = asked()
    assert check(known, again, site) == again


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"class-digest": digest_of(["disease", "healthy"])}, "class names are not this site's"),
        ({"classes": 3}, "3 classes, this site has 2"),
        ({"input": "probs"}, "about 'probs', this site has logits"),
        ({"epsilon": 2.0}, "epsilon"),
        ({"trust": "local"}, "trust"),
        ({"clients": 4}, "noise|ring|plan"),
        ({"unit": "example"}, "unit"),
    ],
)
def test_a_run_that_is_another_is_refused(
    site: Prepared, fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said) as refused:
        check({**FIELDS, **fields}, asked(), site)
    assert "\n" not in str(refused.value)


def test_a_run_config_without_the_public_facts_is_refused(site: Prepared) -> None:
    for key in FEDERATION.to_fields():
        with pytest.raises(InputError, match="no key"):
            check({k: v for k, v in FIELDS.items() if k != key}, asked(), site)


def test_less_noise_than_promised_is_refused(site: Prepared) -> None:
    request = asked()
    assert isinstance(request.noise, Noise)
    less = replace(request.noise, scales=tuple(s / 2 for s in request.noise.scales))
    for change in ({"noise": less}, {"noise": None}, {"context": None}):
        with pytest.raises(InputError):
            check(FIELDS, replace(request, **change), site)


def test_a_wider_bound_is_refused(site: Prepared) -> None:
    request = asked()
    wide = replace(request.bound, norms=tuple(10 * c for c in request.bound.norms))
    with pytest.raises(InputError):
        check(FIELDS, replace(request, bound=wide), site)


def test_an_oversized_answer_is_refused_before_it_is_computed(
    site: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "MOST_NUMBERS", 100)
    with pytest.raises(InputError, match="an answer of 256 numbers is asked for; at most 100"):
        check(FIELDS, asked(), site)


def test_a_promise_to_subjects_needs_subjects(site: Prepared) -> None:
    federation = Federation(5, 2, epsilon=1.0, unit="subject", noise_source="system")
    with pytest.raises(InputError, match="column subject"):
        check({**FIELDS, **federation.to_fields()}, asked(federation), site)


RULES = """
methods = ["fedbin"]
unit = ["user"]
trust = ["distributed"]
adjacency = ["zero-out"]
rounds = 9
expires = 2100-01-01
epsilon-per-run = {}
epsilon-total = 1.0
delta-per-run = 1e-5
delta-total = 1e-5
secure-aggregation = "any"
"""


def test_what_the_policy_does_not_allow_is_refused(tmp_path: Path) -> None:
    for epsilon in (1.0, 0.99):
        (policy := tmp_path / "rules.toml").write_text(RULES.format(epsilon))
        prepare(tmp_path / "site", ROWS, policy=policy)
        site = prepared(tmp_path / "site")
        request = asked()
        for _ in range(2):  # the second time of the plan that is kept
            if epsilon == 1.0:
                assert check(FIELDS, request, site) == request
            else:
                with pytest.raises(InputError, match="policy refuses the epsilon: asked is 1"):
                    check(FIELDS, request, site)


# --- once ---------------------------------------------------------------------------------------


def request_of(run: str = "r1", number: int = 1, bins: int = 4) -> Request:
    context = Context(run, "0" * 64, number, 9, "user", "central", "gaussian", 1.0, 1e-5)
    query = ClassHistograms(2, bins)
    return Request(query, Bound(query.lengths(), ()), Ring(3, 2.0**-24), number, context=context)


class Draws:
    """Fresh words at each call, as the noise of a site is."""

    def __init__(self) -> None:
        self.made: list[Words] = []

    def __call__(self) -> Words:
        self.made.append(np.frombuffer(os.urandom(32), np.uint64))
        return self.made[-1]


def test_the_same_question_gets_the_same_words(tmp_path: Path) -> None:
    draw = Draws()
    first, again = Answers(tmp_path / "a").once(request_of(), draw)
    assert not again
    for _ in range(3):  # each message is a process of its own
        words, again = Answers(tmp_path / "a").once(request_of(), draw)
        assert again
        assert words.tolist() == first.tolist() == draw.made[0].tolist()
    assert len(draw.made) == 1
    other, again = Answers(tmp_path / "a").once(request_of(number=2), draw)
    assert not again
    assert other.tolist() != first.tolist()
    assert not Answers(tmp_path / "a").once(request_of("r2"), draw)[1]


def test_another_question_in_the_same_round_is_refused(tmp_path: Path) -> None:
    draw, answers = Draws(), Answers(tmp_path / "a")
    answers.once(request_of(), draw)
    context = request_of().context
    assert context is not None
    softer = replace(request_of(), context=replace(context, epsilon=2.0))
    for other in (request_of(bins=5), softer):
        with pytest.raises(InputError, match="asked before with another question"):
            answers.once(other, draw)
    assert len(draw.made) == 1


def test_who_is_asked_once_in_a_run_does_not_answer_in_another_round(tmp_path: Path) -> None:
    draw, answers = Draws(), Answers(tmp_path / "a")

    def asked_of(level: int, run: str = "r") -> Request:
        old, cell = request_of(run), ScoreCell(2, np.array([9.0]), 2, level, 0)
        assert old.context is not None
        context = replace(old.context, round=level + 1)
        return replace(
            old, query=cell, bound=cell.bound("client"), round=level + 1, context=context
        )

    first, _ = answers.once(asked_of(0), draw)
    assert answers.once(asked_of(0), draw)[0].tolist() == first.tolist()
    with pytest.raises(InputError, match="asked once"):
        answers.once(asked_of(1), draw)
    assert not answers.once(asked_of(1, "another"), draw)[1]


def test_what_cannot_be_kept_is_not_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    answers = Answers(tmp_path / "a")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(FedcalError, match="No space left on device"):
            answers.once(request_of(), Draws())
    assert not answers.once(request_of(), Draws())[1]  # nothing was sent, so it may be drawn anew


def test_a_failed_draw_keeps_nothing(tmp_path: Path) -> None:
    def fails() -> Words:
        raise ValueError("row 7")

    answers = Answers(tmp_path / "a")
    with pytest.raises(ValueError, match="row 7"):
        answers.once(request_of(), fails)
    assert not answers.once(request_of(), Draws())[1]


def test_old_runs_are_closed_for_ever(tmp_path: Path) -> None:
    draw, answers = Draws(), Answers(tmp_path / "a")
    for i in range(guard.KEPT_RUNS + 2):
        answers.once(request_of(f"r{i}"), draw)
        run = max((p for p in (tmp_path / "a").iterdir() if p.is_dir()), key=os.path.getmtime)
        os.utime(run, (i, i))  # a slow clock decides nothing
    assert sum(path.is_dir() for path in (tmp_path / "a").iterdir()) == guard.KEPT_RUNS
    made = len(draw.made)
    for number in (1, 2):
        with pytest.raises(InputError, match="no longer kept"):
            answers.once(request_of("r0", number), draw)
    assert len(draw.made) == made


@pytest.mark.parametrize("run", ["..", ".", "...", "a:b"])
def test_a_run_names_no_file(tmp_path: Path, run: str) -> None:
    Answers(tmp_path / "a").once(request_of(run), Draws())
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_words_of_old_rounds_are_not_kept_and_not_drawn_again(tmp_path: Path) -> None:
    draw, answers = Draws(), Answers(tmp_path / "a")
    for number in range(1, guard.KEPT_ROUNDS + 2):
        answers.once(request_of(number=number), draw)
    assert answers.once(request_of(number=2), draw)[1]
    with pytest.raises(InputError, match="this round is an old one"):
        answers.once(request_of(number=1), draw)
    assert len(draw.made) == guard.KEPT_ROUNDS + 1
