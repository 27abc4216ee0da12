"""Rows of a run from whatever Python users have, and the rows that test its result."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedcal import datasets
from fedcal.core import checks, naming
from fedcal.core.checks import InputError, needed, same
from fedcal.core.shards import Shards
from fedcal.datasets import BlockRows, Dataset, Population, plausible_rows
from fedcal.partition import client_names, deal
from fedcal.results.page import words
from fedcal.run import jobs
from fedcal.run.config import POOLED, Config
from fedcal.storage.artifact import Holdout
from fedcal.storage.atomic import path_of
from fedcal.strategies.server.outcome import Progress


def load_any(
    data: Any, class_names: str | None = None, positive: str | None = None, model: Any = None
) -> Dataset:
    """Return a `Dataset` from anything that `simulate` takes as `data`; InputError otherwise.

    Parameters
    ----------
    data
        see `simulate`
    class_names, positive
        as the options are: names by comma, and which of two classes is column 1
    model
        that scores the rows, see `datasets.from_model`
    """
    names = None if class_names is None else naming.names_in(class_names)
    named: Any = {"classes": names, "positive": positive}
    if isinstance(data, Mapping) and datasets.is_shipped(str(data.get("name"))):
        raise InputError(f"name {data['name']!r} is a shipped set's, and its config would run that")
    if model is not None:
        return datasets.from_model(model, data, **named)
    if isinstance(data, Dataset):
        return data.in_order(names, positive)
    if isinstance(data, (str, Path)):
        return datasets.load(data, **named)
    if type(data).__module__.partition(".")[0] == "datasets":  # Hugging Face's
        checks.check_kept("reading a datasets.Dataset")
    if hasattr(data, "columns") and hasattr(data, "to_numpy"):
        return datasets.from_frame(data, **named)
    arrays = datasets.by_name(data, "logits", (*datasets.KEYS, "name"))
    return datasets.from_arrays(**{"labels": None} | arrays | named)


def name_of(data: Any, loaded: Dataset | BlockRows) -> str:
    """Return the name of the data in a config: a file by its full path."""
    if isinstance(data, (str, Path)) and datasets.are_blocks(data):
        return f"{datasets.BLOCKS}{path_of(str(data).removeprefix(datasets.BLOCKS)).absolute()}"
    if isinstance(data, (str, Path)) and not datasets.is_shipped(str(data)):
        return str(path_of(data).resolve())
    return str(loaded.name)


def test_part(rows: Dataset, seed: int) -> Holdout:
    """The test rows of a data set that was split; InputError if it has none."""
    why, names = f"{rows.name} has no test rows", ("test_logits", "test_probs", "test_labels")
    logits, probs, labels = (needed(name, getattr(rows, name), why) for name in names)
    return Holdout(
        *(logits, probs, labels, seed),
        owner=rows.test_client,
        names=rows.client_names or (),
        group=rows.test_group,
        group_names=rows.group_names or (),
        class_names=rows.class_names,
        fit_rows=len(rows.labels),
    )


def warn_of_rows(rows: Holdout | Dataset, where: str) -> None:
    """Warn of rows that are probably not what they are taken for (`doubts_of`)."""
    for finding in plausible_rows.doubts_of(where, rows.logits, rows.labels, rows.class_names):
        checks.warn(f"{where}: {finding}")


def assigned_rows(
    loaded: Dataset, method: str, partition: str, clients: int | None, seed: int
) -> tuple[Dataset, Shards, tuple[str, ...]]:
    """Return the data, the rows of a method partitioned over clients, and the clients' names.

    A method that evaluates reads the rows to evaluate; others read the rows to fit, beside a test
    part.
    """
    data = loaded.evaluated() if jobs.evaluates(method) else loaded.split(seed)
    shards = deal(data, partition, clients, seed)
    return data, shards, client_names(data, partition, shards.clients)


@dataclass(frozen=True)
class RunRows:
    """Rows that a run reads, and data that evaluate it afterwards.

    Attributes
    ----------
    config
        with the settings that stand for something in these rows
    shards
        one for each client
    data
        of which they are
    test
        rows that judge the result
    tested
        whether these are other rows than the clients'
    held_out
        whether they were drawn from the same rows
    said
        what the deal itself tells of the rows, in whole sentences
    """

    config: Config
    shards: Population
    data: Dataset | BlockRows
    test: Holdout | None = None
    tested: bool = False
    sentences: Sequence[str] = ()
    held_out: bool = False


def read_rows(asked: Config, data: Any, progress: Progress | None = None) -> tuple[Config, RunRows]:
    """Return the rows of a run, from memory or in blocks, and the config that names them."""
    if datasets.are_blocks(data):
        rows = rows_in_blocks(asked, data, progress)
        asked = replace(asked, data=name_of(data, rows.data))
        return asked, replace(rows, config=replace(rows.config, data=asked.data))
    loaded = load_any(data, asked.class_names, asked.positive)
    asked = replace(asked, data=name_of(data, loaded))
    return asked, rows_of(asked, loaded)


def rows_of(config: Config, loaded: Dataset) -> RunRows:
    """Deal the rows that the method is about: those it fits, or those it evaluates.

    Parameters
    ----------
    config
        what was asked for
    loaded
        its data

    Raises
    ------
    InputError
        If the data have no such rows, or lack what a setting names.

    Warns
    -----
    UserWarning
        Of rows that are probably not what they are taken for.
    """
    evaluates = jobs.evaluates(config.method)
    data, partitioned, names = assigned_rows(
        loaded, config.method, config.partition, config.clients, config.seed
    )
    known, shards = jobs.resolved(config, partitioned, names)
    if evaluates:
        test = jobs.holdout(shards, names, config.seed, data.class_names)
    else:
        test = test_part(data, config.seed)
        if jobs.is_personal(config.method):
            test = replace(test, fit=shards)
    warn_of_rows(test, "evaluated rows" if evaluates else "test rows")
    return RunRows(
        config=known,
        shards=shards,
        data=data,
        test=test,
        tested=not evaluates,
        held_out=loaded.test_scores is None and not (evaluates or test.fit is not None),
        sentences=_sentences(config, data, config.partition != "natural" and data.client_names),
    )


def _sentences(config: Config, data: Any, named: Any = (), untested: bool = False) -> Sequence[str]:
    """Return sentences on what a run took from its rows, and did not."""
    about = {"named": named, "untested": untested, "private": math.isfinite(config.epsilon)}
    return words("rows", config=config, data=data, **about)["said"]


def rows_in_blocks(config: Config, data: Any, progress: Progress | None = None) -> RunRows:
    """Open the rows that a run reads in blocks; they stay with the clients that the data name.

    Raises InputError as `datasets.in_blocks`, or if the run needs all rows in memory.

    Parameters
    ----------
    config
        what was asked for
    data
        the path of the files, or open rows
    progress
        called with pieces checked, and all
    """
    evaluates = jobs.evaluates(config.method)
    same("partition of rows in blocks", config.partition, "natural")
    if config.method in POOLED:
        raise InputError(f"method {config.method!r} needs all rows in memory, not in blocks")
    if isinstance(data, BlockRows):
        shards = data
    else:
        names = None if config.class_names is None else naming.names_in(config.class_names)
        given: Any = {"classes": names, "positive": config.positive, "tested": evaluates}
        shards = datasets.in_blocks(data, **given, progress=progress)
    if config.clients is not None:
        same(f"number of clients in {shards.name}", config.clients, shards.clients)
    known, _ = jobs.resolved(config, shards, ())
    test = None
    if shards.test is not None and not evaluates:
        own = shards.test
        facts: Any = {"class_names": own.class_names, "fit_rows": shards.size}
        test = Holdout(own.logits, own.probs, own.labels, config.seed, **facts)
        warn_of_rows(test, "test rows")
    return RunRows(
        config=known,
        shards=shards,
        data=shards,
        test=test,
        tested=test is not None,
        sentences=_sentences(config, shards, untested=not (test or evaluates)),
    )
