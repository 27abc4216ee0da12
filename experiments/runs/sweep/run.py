"""The one way to run many runs: what is kept already is not run again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from fedcal.core.errors import FedcalError, InputError, Interrupted
from fedcal.experiments.runs.result import versions
from fedcal.experiments.runs.sweep.journal import Folder, Journal, journal
from fedcal.experiments.runs.sweep.pools import Pool, Row, Run, Sources, Work, digest_of, key_of
from fedcal.strategies.server.outcome import Progress


class Savable(Protocol):
    """Object made from all rows, which can be saved."""

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
    runs
        equal ones are run once
    sources
        the data sets that runs name
    work
        computes one run; a function of a module, so that other processes find it
    made_of
        takes all rows, in the order of `runs`
    place
        where, from `pool_of`
    folder
        keeps finished rows while it goes on, and then what is made of them; None = no files
    resume
        go on with what the folder holds, and run again what failed
    progress
        called after each run with runs finished, runs kept earlier among them, and all

    Returns
    -------
    Made
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
    step = progress or (lambda done, total: None)
    rows: dict[str, Row] = {}
    keep: Callable[[str, Row], None] = rows.__setitem__
    log: Journal | None = None
    with place as pool, ExitStack() as stack:
        if folder is not None:
            inputs = {name: digest_of(source) for name, source in sources.items()}
            check = partial(_check_kept, runs=named)
            log = stack.enter_context(journal(folder, inputs, resume=resume, check=check))
            rows, keep = log.rows, log.append
        try:
            step(len(rows), len(named))
            missing = [run for key, run in named.items() if key not in rows]
            with closing(pool(missing, sources, work)) as finished:
                for row in finished:
                    keep(key_of(row["run"]), row)
                    step(len(rows), len(named))
            made = made_of([rows[key_of(run)] for run in runs])
            if log is not None:
                log.finish(made.save)
        except (KeyboardInterrupt, FedcalError) as e:
            if log is None:
                raise
            message = f"{log.count()} of {len(named)} runs are kept in {log.folder}"
            if isinstance(e, FedcalError):
                raise FedcalError(f"{e}; {message}; go on with --resume") from None
            raise Interrupted(f"{message}; continue with --resume") from None
        return made


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
