"""The other end of `pools.in_processes`: a run on a line in, its row on a line out."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
from functools import cache
from pathlib import Path

from fedcal.datasets import Dataset
from fedcal.experiments.runs.data import read_data


def serve(folder: str, names: str, work: str) -> None:
    """Answer runs until nobody sends them any more.

    Parameters
    ----------
    folder : data set k is in its folder k, as `write_data` wrote it. Removed at the end: who
        sends no more, but has not ended us, was killed
    names : JSON, the list of data sets
    work : "MODULE:NAME" of the function that makes a row of a run and its data
    """
    module, _, function = work.partition(":")
    row_of = getattr(importlib.import_module(module), function)
    places = {name: Path(folder, str(k)) for k, name in enumerate(json.loads(names))}
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a package prints is no answer

    @cache
    def source(name: str) -> Dataset:
        return read_data(places[name])

    for line in sys.stdin:
        run = json.loads(line)
        row = json.dumps(row_of(run, source(run["data"])), allow_nan=False)
        try:
            print(row, file=answers, flush=True)
        except BrokenPipeError:
            break
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)  # without a word about what could not be sent
