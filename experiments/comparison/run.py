"""Many methods, budgets, partitions and seeds in one table: what `fedcal compare` runs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from fedcal import datasets
from fedcal.checks import one_of, whole
from fedcal.datasets import Dataset
from fedcal.errors import FedcalError, InputError, Interrupted
from fedcal.experiments.comparison.grid import Grid, read_grid
from fedcal.experiments.comparison.journal import Journal, grid_in, journal
from fedcal.experiments.comparison.pools import Pool, Work, here, on_ray
from fedcal.experiments.comparison.resolve import resolve
from fedcal.experiments.comparison.result import Comparison
from fedcal.experiments.comparison.row import Row, Run, digest_of, key_of, runs_of
from fedcal.experiments.config import read_toml
from fedcal.experiments.engines.processes import usable_cores
from fedcal.experiments.files import check_out
from fedcal.experiments.result import versions
from fedcal.experiments.simulation import load_any
from fedcal.strategies.job import Progress

Data: TypeAlias = str | Path | Dataset | Mapping[str, Any]
ENGINES = ("inline", "ray")


def compare(
    data: Data | Sequence[Data] | None = None,
    *,
    config: str | Path | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    jobs: int | None = None,
    engine: str | None = None,
    ray_address: str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Comparison:
    """Run every method at every budget on every partition with every seed.

    Choosing among methods by their results on private rows is itself a release: see `statement`
    of what comes back.

    Parameters
    ----------
    data : as in `simulate`, or a list of such
    config : TOML file with any of the options
    out : folder for `rows.jsonl`, which grows while it runs, and, at the end, `compare.json`,
        `table.csv`, `table.md`, `report.html` and figures; None = write nothing. A finished
        comparison there stays until this one is saved; meanwhile this one lies in `.unfinished`
        in it. The hidden `.inputs.json`, with digests of the data, is for `resume` alone and not
        to be published
    resume : go on with what `out` holds, and run again what failed. Options that are not given
        are those it was begun with; a grid may grow, but what was begun must stay part of it
    jobs : processes; None = the cores that may be used. 1 = this process
    engine : "inline" = processes of this machine; "ray" = tasks on Ray. Each run is computed
        inline on either: all engines of `simulate` give the same bits
    ray_address : of a Ray cluster, or "local"; implies "ray"
    progress : called after each run with runs finished, runs kept earlier among them, and all
    **options : as on the command line. Each a value, a list, or text with commas: method (all;
        `fedbbq[weighting=none]` is fedbbq with a parameter), partition, clients, rounds,
        sampling_rate, epsilon (inf and 1), delta, unit, trust, mechanism. A single value: seeds
        (5) and seed (0), runs have seed .. seed + seeds - 1; quorum, noise_source,
        secure_aggregation, dropout, and set={...} for every method that has such a parameter.
        Baselines (none, pooled-...) appear once for each data set. At epsilon = inf nothing but
        exact sums is released, whatever delta and trust. A budget, unit, trust and mechanism that
        do not go together are left out, with a warning and a line in `statement`

    Returns
    -------
    Comparison
        The same, but for seconds, whatever `jobs`, `engine`, and interruptions. A run that fails
        in operation is a row that says why, and the others go on.

    Raises
    ------
    InputError
        Anything in the whole grid that is not allowed; nothing ran.
    FedcalError
        A worker died, or nothing can be written; finished runs are kept in `out`.
    Interrupted
        Ctrl-C; finished runs are kept in `out`.
    """
    place = pool_of(jobs, engine, ray_address)
    folder = None if out is None else Path(out)
    begun: Mapping[str, Any] = {}
    if resume:
        if folder is None:
            raise InputError("resume needs the folder of the comparison: give --out DIR")
        begun = grid_in(folder).to_dict() if config is None else {}
    elif folder is not None:
        check_out(folder, foreign="result.json")
    named, arrays = _named(data)
    read = {} if config is None else read_toml(Path(config))
    grid = _with_paths(read_grid(begun, read, {"data": named}, options), arrays)
    sources = {name: load_any(arrays.get(name, name)) for name in grid.data}
    cells, left_out = resolve(grid, sources)
    runs = {key_of(run): run for cell in cells for run in runs_of(cell)}
    held_out = {name: source.test_scores is None for name, source in sources.items()}

    with place as pool:

        def rows_of(todo: Sequence[Run]) -> Generator[Row]:
            return pool(todo, sources)

        if folder is None:
            rows: dict[str, Row] = {}
            run_missing(runs, rows, rows.__setitem__, rows_of, progress)
            return Comparison.of(grid, cells, rows, held_out, left_out)
        check = partial(check_kept, runs=runs)
        inputs = {name: digest_of(source) for name, source in sources.items()}
        opened = journal(folder, grid, inputs, resume=resume, check=check)
        with opened as kept, told(kept, len(runs)):
            run_missing(runs, kept.rows, kept.append, rows_of, progress)
            comparison = Comparison.of(grid, cells, kept.rows, held_out, left_out)
            kept.finish(comparison.save)
            return comparison


def _named(data: Data | Sequence[Data] | None) -> tuple[Any, dict[str, Dataset]]:
    """What the option `data` is to say, and those that are no file and no shipped set by name."""
    if data is None or isinstance(data, str):
        return data, {}
    listed = list(data) if isinstance(data, Sequence) else [data]
    loaded = [d if isinstance(d, (str, Path)) else load_any(d) for d in listed]
    names = [d.name if isinstance(d, Dataset) else str(d) for d in loaded]
    return names, {d.name: d for d in loaded if isinstance(d, Dataset)}


def _with_paths(grid: Grid, arrays: Mapping[str, Dataset]) -> Grid:
    """Files by their whole path, as `simulate` names them."""

    def named(data: str) -> str:
        there = data in arrays or datasets.is_shipped(data)
        return data if there else str(Path(data).expanduser().resolve())

    whole: Any = {"data": tuple(map(named, grid.data))}  # a field made of one of `Config`
    return replace(grid, **whole)


def pool_of(
    jobs: int | None, engine: str | None, ray_address: str | None, work: Work | None = None
) -> AbstractContextManager[Pool]:
    """Where runs are computed; InputError for options that do not fit. `work`: see `pools`."""
    if jobs is not None:
        whole("jobs", jobs, 1)
    engine = one_of("engine", engine or ("ray" if ray_address else "inline"), ENGINES)
    if engine == "ray":
        return on_ray(jobs, ray_address, work)
    if ray_address:
        raise InputError("ray_address needs the engine ray: give --engine ray")
    return nullcontext(partial(here, jobs=jobs or usable_cores(), work=work))


def run_missing(
    runs: Mapping[str, Run],
    rows: Mapping[str, Row],
    keep: Callable[[str, Row], None],
    rows_of: Callable[[Sequence[Run]], Generator[Row]],
    progress: Progress | None,
) -> None:
    """Run what is not among `rows` yet; `keep` puts it there."""
    todo = [run for key, run in runs.items() if key not in rows]
    if progress:
        progress(len(rows), len(runs))
    with closing(rows_of(todo)) as finished:
        for row in finished:
            keep(key_of(row["run"]), row)
            if progress:
                progress(len(rows), len(runs))


@contextmanager
def told(kept: Journal, runs: int) -> Iterator[None]:
    """Whatever goes wrong, the message says what is kept and how to go on."""
    try:
        yield
    except (KeyboardInterrupt, FedcalError) as e:
        said = f"{kept.count()} of {runs} runs are kept in {kept.folder}; go on with --resume"
        if isinstance(e, FedcalError):
            raise FedcalError(f"{e}; {said}") from None
        raise Interrupted(said) from None


def check_kept(rows: Mapping[str, Row], runs: Mapping[str, Run]) -> None:
    """Refuse to put rows into one table that are not of this grid, or not of the same code."""
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
