"""What a real site checks before it answers, and how it answers each question only once.

A server that follows the protocol passes every check. Of one that does not, the site believes
nothing: the plan is made again here (`own_plan`), and a second answer to a round would be
a second release, so that what was sent once is kept and sent again, word for word.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedcal.agreement import PlanOfJob, own_request
from fedcal.atomic import sync_folder, whole_file
from fedcal.clients.own_plan import own_plan
from fedcal.clients.prepared import Prepared
from fedcal.errors import InputError
from fedcal.locks import locked
from fedcal.queries.request import Request
from fedcal.shards import NO_SUBJECTS
from fedcal.streams import key_of
from fedcal.training.network import text_of
from fedcal.types import Words

MOST_NUMBERS = 1 << 22
"""Numbers of an answer, 32 MiB of them: larger ones are refused before they are computed."""

KEPT_RUNS = 20
"""Runs whose words are kept; older ones are closed, and never answered again."""

KEPT_ROUNDS = 4
"""Rounds of a run whose words are kept: a server that goes on asks the last one again."""


def check(
    fields: Mapping[str, Any], request: Request, site: Prepared, plan_of_job: PlanOfJob
) -> Request:
    """The request as this site may answer it, with its own noise where clients add noise.

    Parameters
    ----------
    fields
        the run config: the job's public facts
    request
        as it came
    plan_of_job
        makes the site's own plan

    Raises
    ------
    InputError
        One line that says what differs; nothing in it comes from a row.
    """
    if request.context is None:
        raise InputError("the request does not say what it is asked for")
    _check_inputs(request.query.reads, site)
    if request.bound.length > MOST_NUMBERS:
        raise InputError(
            f"an answer of {request.bound.length} numbers is asked for; at most {MOST_NUMBERS} "
            "are sent"
        )
    plan = own_plan(fields, request.context.run, site, plan_of_job)
    site.check_policy(fields, plan, request.bound.length)
    own = own_request(fields, request, plan)
    if own.bound.per == "subject" and site.shards.subjects is None:
        raise InputError(NO_SUBJECTS)
    return own


def _check_inputs(reads: tuple[int, ...] | None, site: Prepared) -> None:
    """Refuse a question about scores where there are none, or a network that reads others."""
    if reads is None and site.shards.inputs is not None:
        raise InputError("the question is about scores, this site has rows to train on")
    if reads not in (None, own := site.shards.input_shape):
        raise InputError(
            f"the network reads inputs of shape {text_of(reads or ())}, this site's are of shape "
            f"{text_of(own)}"
        )


class Answers:
    """What was sent, by run and round.

    Formal guarantee: for each run and round at most one contribution with its own noise and coin
    leaves the site, whatever is asked and how often, and none that is not on the disk.

    Parameters
    ----------
    folder
        of the answers alone; made if it is not there
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def once(self, request: Request, draw: Callable[[], Words]) -> tuple[Words, bool]:
        """The words of this round, drawn now or kept since the question came first.

        Parameters
        ----------
        request
            with its context
        draw
            computes the contribution; called at most once in the life of a round

        Returns
        -------
        tuple[Words, bool]
            (length,) and whether they had been sent before

        Raises
        ------
        InputError
            If the round was asked before with another question, or its run is closed.
        FedcalError
            If the words cannot be kept: then nobody may have them.
        """
        context = request.context
        if context is None:
            raise InputError("the request does not say what it is asked for")
        # A run's id is the server's text: it names no file here.
        run = self._folder / hashlib.sha256(context.run.encode()).hexdigest()[:32]
        asked = key_of(request.key, vars(context))
        path = run / f"{context.round}-{asked}.npy"
        self._make(self._folder)
        with locked(self._folder / "lock", "another process answers", wait=True):
            if _closed(run).exists():
                raise InputError("this run is an old one, whose answers are no longer kept")
            if path.exists():
                if not path.stat().st_size:
                    raise InputError("this round is an old one, whose answer is no longer kept")
                words: Words = np.load(path, allow_pickle=False)
                return words, True
            if any(run.glob(f"{context.round}-*.npy")):
                raise InputError("this round was asked before with another question")
            if request.query.asked_once and any(run.glob("*.npy")):
                raise InputError("in this run each client is asked once, and this one was")
            words = draw()
            self._make(run)
            with whole_file(path, durable=True) as file:
                np.save(file, words, allow_pickle=False)
            sync_folder(self._folder)  # the run's folder may be a new one
            for old in run.glob(f"{context.round - KEPT_ROUNDS}-*.npy"):
                os.truncate(old, 0)  # its name stays: it is not answered again
            self._close_old()
        return words, False

    def _close_old(self) -> None:
        """Drop the words of all but the last runs; a small file keeps each closed for ever."""
        runs = sorted((p for p in self._folder.iterdir() if p.is_dir()), key=_changed)
        for run in runs[:-KEPT_RUNS]:
            _closed(run).touch()
            shutil.rmtree(run, ignore_errors=True)

    @staticmethod
    def _make(folder: Path) -> None:
        try:
            folder.mkdir(exist_ok=True)
        except OSError as e:
            raise InputError(f"cannot write {folder.name}: {e.strerror}") from None


def _closed(run: Path) -> Path:
    return run.with_suffix(".closed")


def _changed(path: Path) -> int:
    return path.stat().st_mtime_ns
