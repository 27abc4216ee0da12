"""The one way to run many runs: what is kept already is not run again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from fedcal.errors import FedcalError, InputError, Interrupted
from fedcal.experiments.result import versions
from fedcal.experiments.runs.data import digest_of
from fedcal.experiments.runs.journal import Folder, Journal, journal
from fedcal.experiments.runs.pools import Pool, Row, Run, Sources, Work, key_of
from fedcal.strategies.outcome import Progress


class Savable(Protocol):
    """What is made of all rows."""

    def save(self, out: Path) -> None:
        """Write it into a folder, `config.toml` and `rows.jsonl` in order among it."""


Made = TypeVar("Made", bound=Savable)


def run_all(
    runs: Sequence[Run],
    sources: Sources,
    work: Work,
    made_of: Callable[[list[Row]], Made],
    *,
    place: AbstractContextManager[Pool],
    folder: Folder | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> Made:
    """Run everything, and save what is made of it.

    Parameters
    ----------
    runs : equal ones are run once
    sources : the data sets that runs name
    work : computes one run; a function of a module, so that other processes find it
    made_of : takes all rows, in the order of `runs`
    place : where, from `pool_of`
    folder : keeps finished rows while it goes on, and then what is made of them; None = no files
    resume : go on with what the folder holds, and run again what failed
    progress : called after each run with runs finished, runs kept earlier among them, and all

    Returns
    -------
    What `made_of` gives.

    Raises
    ------
    InputError
        A folder that holds something else, or that is not to be replaced; nothing ran.
    FedcalError
        A worker died, or nothing can be written; finished runs are kept in the folder.
    Interrupted
        Ctrl-C; finished runs are kept in the folder.
    """
    named = {key_of(run): run for run in runs}

    def run_missing(
        pool: Pool, rows: Mapping[str, Row], keep: Callable[[str, Row], None]
    ) -> list[Row]:
        if progress:
            progress(len(rows), len(named))
        missing = [run for key, run in named.items() if key not in rows]
        with closing(pool(missing, sources, work)) as finished:
            for row in finished:
                keep(key_of(row["run"]), row)
                if progress:
                    progress(len(rows), len(named))
        return [rows[key_of(run)] for run in runs]

    with place as pool:
        if folder is None:
            rows: dict[str, Row] = {}
            return made_of(run_missing(pool, rows, rows.__setitem__))
        inputs = {name: digest_of(source) for name, source in sources.items()}
        opened = journal(folder, inputs, resume=resume, check=partial(_check_kept, runs=named))
        with opened as kept, _saying_what_is_kept(kept, len(named)):
            made = made_of(run_missing(pool, kept.rows, kept.append))
            kept.finish(made.save)
            return made


@contextmanager
def _saying_what_is_kept(kept: Journal, runs: int) -> Iterator[None]:
    """Whatever goes wrong, the message says what is kept and how to go on."""
    try:
        yield
    except (KeyboardInterrupt, FedcalError) as e:
        text = f"{kept.count()} of {runs} runs are kept in {kept.folder}; go on with --resume"
        if isinstance(e, FedcalError):
            raise FedcalError(f"{e}; {text}") from None
        raise Interrupted(text) from None


def _check_kept(rows: Mapping[str, Row], runs: Mapping[str, Run]) -> None:
    """Refuse to put rows together that are not of these runs, or not of the same code."""
    now = versions()
    for key, row in rows.items():
        if key not in runs:
            raise InputError(f"a row that is kept is not of this grid: {key[:300]}")
        if row["versions"] != now:
            then = row["versions"]
            differ = [f"{k} {then.get(k)} -> {v}" for k, v in now.items() if then.get(k) != v]
            raise InputError(
                f"this comparison was begun with other versions ({', '.join(differ)}); start anew"
            )
