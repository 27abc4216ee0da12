"""One method on one data set over simulated clients: what `fedcal simulate` runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedcal import datasets
from fedcal.artifact import Holdout
from fedcal.datasets import Dataset
from fedcal.errors import InputError
from fedcal.experiments.config import Config, merge
from fedcal.experiments.fitting import fit
from fedcal.experiments.inputs import load_any
from fedcal.experiments.result import SimulationResult, versions
from fedcal.experiments.statement import HELD_OUT, NOT_NATURAL
from fedcal.partition import deal
from fedcal.strategies.outcome import Progress


def simulate(
    data: str | Path | Dataset | Mapping[str, Any] | None = None,
    *,
    config: Config | None = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> SimulationResult:
    """Run a method over simulated clients: calibrate a model, or what else the method is for.

    Parameters
    ----------
    data : a shipped name, the path of a file, a `Dataset`, or arrays as a mapping with the keys
        of a data file (`logits` or `probs`, `labels`, ...); None = what `config` names
    config : instead of options
    out : folder for result files; None = write nothing
    progress : called after each round
    **options : as on the command line: method, clients, partition, rounds, sampling_rate,
        epsilon, delta, unit, trust, mechanism, quorum, noise_source, secure_aggregation, dropout,
        seed, ledger, cap, cap_delta, set={...}

    Raises
    ------
    InputError
        Anything the user gave that is not allowed; nothing was released.
    RoundFailed
        Nobody who was sampled answered; nothing is written.
    """
    if config is not None and options:
        raise InputError(f"give config or options, not both; got {', '.join(options)}")
    if data is None:
        data = Config.data if config is None else config.data
    loaded = load_any(data)
    named, by_name = loaded.name, isinstance(data, (str, Path))
    if isinstance(data, (str, Path)) and not datasets.is_shipped(str(data)):
        named = str(Path(data).expanduser().resolve())
    config = merge({"data": named}, options) if config is None else replace(config, data=named)
    held_out = loaded.test_scores is None
    loaded = loaded.split(config.seed)
    shards = deal(loaded, config.partition, config.clients, config.seed)
    given = config
    if config.ledger is not None:  # found again from another folder
        given = replace(config, ledger=str(Path(config.ledger).resolve()))
    fitted = fit(config, shards, held_out=held_out, by_name=by_name, progress=progress)
    statement = fitted.privacy["statement"]
    if held_out:
        statement.append(HELD_OUT.format(fitted.outcome.artifact.noun))
    statement += fitted.about_subjects
    if loaded.client_names is not None and config.partition != "natural":
        dealt = NOT_NATURAL.format(loaded.name, len(loaded.client_names), config.partition)
        statement.append(dealt)
    logits, before, labels = loaded.test_logits, loaded.test_probs, loaded.test_labels
    if logits is None or before is None or labels is None:
        raise InputError(f"{loaded.name} has no test rows")
    outcome = fitted.outcome
    test = Holdout(logits, before, labels, fitted.config.seed)
    result = SimulationResult(
        artifact=outcome.artifact,
        judged=outcome.artifact.judge(test),
        privacy=fitted.privacy,
        communication={
            "bytes_up_per_client": outcome.bytes_up,
            "bytes_down_per_client": outcome.bytes_down,
            "rounds": len(outcome.records),
        },
        config=fitted.config,
        given=given,
        seconds=outcome.seconds,
        versions=versions(),
        rounds=outcome.records,
        test=test,
        data=loaded,
        history=outcome.history,
    )
    if out is not None:
        result.save(out)
    return result
