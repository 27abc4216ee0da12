"""Keep what a run has paid for on disk before anything that can fail is made of it.

A release cannot be taken back, nor its charge. So its outcome (artifact, releases, budget) and its
options are kept in the folder of the results the moment they are known; metrics, figures and the
report come after. `fedcal report DIR` makes what is missing, and pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from fedcal.core.errors import FedcalError, InputError, Interrupted
from fedcal.experiments.runs.files import write_folder
from fedcal.experiments.runs.folders import Kind
from fedcal.strategies.server.checkpoint import WAITING
from fedcal.strategies.server.job import Job
from fedcal.strategies.server.outcome import OUTCOME, Outcome

CONFIG = "config.toml"

Run = Callable[[], Outcome]


@dataclass
class Paid:
    """Keeps the outcome of a run.

    Attributes
    ----------
    out
        folder of the results; None = nothing is kept
    kind
        of these
    config
        text of the run's options
    resume
        take the outcome that is there, and run nothing
    known
        whether the folder holds the outcome
    """

    out: Path | None
    kind: Kind
    config: str
    resume: bool = False
    known: bool = False

    def outcome(self, job: Job, run: Run) -> Outcome:
        """Run a job and keep its outcome, or read the one that is kept.

        Raises
        ------
        InputError
            There is none, or it is that of another job.
        FedcalError
            It cannot be written.
        """
        if self.out is None:
            return run()
        if self.resume:
            outcome = _kept(self.out, job)
        else:
            outcome = replace(run(), job=job.to_fields())
            write_folder(
                self.out,
                lambda folder: self._write(folder, outcome),
                stale={*self.kind.files} - {*self.kind.unfinished},
            )
        self.known = True
        return outcome

    def _write(self, folder: Path, outcome: Outcome) -> None:
        (folder / CONFIG).write_text(self.config, "utf-8")
        outcome.save(folder)

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Say that the outcome is kept, and how to go on, if no result can be made from it.

        Raises
        ------
        FedcalError
            What went wrong.
        Interrupted
            On Ctrl-C.
        """
        try:
            yield
        except (Exception, KeyboardInterrupt) as error:
            if not self.known:
                raise
            again = (
                f"the release is in {self.out}: fedcal report {self.out} makes the report at no "
                "cost"
            )
            if isinstance(error, KeyboardInterrupt):
                raise Interrupted(again) from None
            own = isinstance(error, FedcalError)
            message = f"{error}" if own else f"{type(error).__name__}: {error}"
            raise FedcalError(f"{message}; {again}") from error


def _kept(out: Path, job: Job) -> Outcome:
    outcome, now = Outcome.load(out), job.to_fields()
    for key in sorted({*outcome.job, *now} - {*WAITING}):
        if outcome.job.get(key) != now.get(key):
            raise InputError(
                f"{out / OUTCOME} is of a run with {key} = {outcome.job.get(key)!r:.80}, not "
                f"{now.get(key)!r:.80}: options or data are not those of the run"
            )
    return outcome
