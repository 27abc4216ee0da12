"""One method on one data set over simulated clients: what `fedcal simulate` runs."""

from __future__ import annotations

import math
import platform
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

import fedcal
from experiments.config import POOLED, Config, make_shards, merge, resolved, settings_of
from experiments.engines.inline import random_dropouts, run_inline
from fedcal import datasets
from fedcal.calibrators import BBQ, Calibrator, Identity, TemperatureScaling
from fedcal.datasets import Dataset
from fedcal.errors import InputError
from fedcal.metrics import Reliability, summary
from fedcal.privacy.ledger import Ledger
from fedcal.privacy.plan import Federation
from fedcal.release import Release
from fedcal.shards import Shards
from fedcal.types import Floats
from strategies import STRATEGIES, CalibrationStrategy

NOMINAL_ROWS = (
    "rows_per_client = {:g}, which sets the clip bound, was taken from the size of the simulated "
    "data; a deployment must choose it as a public number."
)

Progress = Callable[[int, int], None]
"""(rounds done, rounds planned)."""


@dataclass(frozen=True)
class SimulationResult:
    """A fitted calibrator, what it is worth on test rows, and what it cost.

    Attributes
    ----------
    calibrator : ready for `predict_proba` and `save`
    before, after : metrics on the test rows, as fractions. For the researcher's eyes: they are
        exact numbers about test rows, not private releases
    privacy : unit, adjacency, trust, epsilon, delta, mechanism, noise_std, ...
    communication : payload bytes per client over the whole run, rounds
    config : resolved; running it again gives the same bits
    seconds : of the federated rounds (or the pooled fit)
    rounds : one record per release
    """

    calibrator: Calibrator
    before: dict[str, float]
    after: dict[str, float]
    privacy: dict[str, Any]
    communication: dict[str, Any]
    config: Config
    seconds: float
    versions: dict[str, str]
    rounds: list[dict[str, Any]] = field(repr=False)
    reliability: dict[str, Reliability] = field(repr=False)
    test_probs: Floats = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """The content of `result.json`: strict JSON, no NaN and no infinity."""
        config = self.config.to_dict()
        if math.isinf(self.config.epsilon):
            config["epsilon"] = "inf"
        return {
            "schema": 1,
            "method": self.config.method,
            "config": config,
            "before": self.before,
            "after": self.after,
            "privacy": self.privacy,
            "communication": self.communication,
            "seconds": self.seconds,
            "versions": self.versions,
        }

    def save(self, out: str | Path) -> None:
        """Write `result.json` and its companions into the folder `out`."""
        from experiments.files import save_result

        save_result(self, Path(out))


def simulate(
    data: str | Path | Dataset | Mapping[str, Any] | None = None,
    *,
    config: Config | None = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> SimulationResult:
    """Calibrate a model over simulated clients.

    Parameters
    ----------
    data : a shipped name, the path of a file, a `Dataset`, or arrays as a mapping with the keys
        of a data file (`logits` or `probs`, `labels`, ...); None = what `config` names
    config : instead of options
    out : folder for result files; None = write nothing
    progress : called after each round
    **options : as on the command line: method, clients, partition, rounds, sampling_rate,
        epsilon, delta, unit, trust, secure_aggregation, dropout, seed, ledger, cap,
        set={...}

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
    loaded = _load(data)
    named = loaded.name
    if isinstance(data, (str, Path)) and str(data) not in _shipped():
        named = str(Path(data).resolve())
    config = merge({"data": named}, options) if config is None else resolved(config, data=named)
    loaded = loaded.split(config.seed)
    shards = make_shards(loaded, config)
    federation = Federation(
        clients=shards.clients,
        classes=loaded.classes,
        rounds=config.rounds,
        sampling_rate=config.sampling_rate,
        epsilon=config.epsilon,
        delta=config.delta,
        unit=config.unit,
        trust=config.trust,
        seed=config.seed,
    )
    if config.method in POOLED:
        run = _fit_pooled(config, shards)
    else:
        run = _fit_federated(config, federation, shards, progress)
    run.calibrator.input = loaded.input
    result = _judge(run, loaded)
    if out is not None:
        result.save(out)
    return result


@dataclass(frozen=True)
class _Run:
    """A fit before it is judged on test rows."""

    calibrator: Calibrator
    config: Config
    seconds: float
    privacy: dict[str, Any]
    communication: dict[str, Any]
    rounds: list[dict[str, Any]]


def _shipped() -> set[str]:
    return {entry.name for entry in datasets.catalogue()}


def _load(data: Any) -> Dataset:
    if isinstance(data, Dataset):
        return data
    if isinstance(data, Mapping):
        try:
            return datasets.from_arrays(**data)
        except TypeError:
            raise InputError(
                "arrays need the keys logits or probs, labels, and perhaps client, test_logits "
                f"or test_probs, test_labels; got {', '.join(map(str, data))}"
            ) from None
    return datasets.load(data)


def _fit_pooled(config: Config, shards: Shards) -> _Run:
    fits: dict[str, Calibrator] = {
        "none": Identity(),
        "pooled-temperature": TemperatureScaling(),
        "pooled-bbq": BBQ(),
    }
    start = time.perf_counter()
    calibrator = fits[config.method].fit(shards.logits, shards.labels)
    seconds = time.perf_counter() - start
    if config.method == "none":
        said = "Nothing was learned from anybody."
    else:
        said = "All rows were pooled in one place: no federation and no privacy."
    privacy = _no_privacy("none", config.unit, said)
    communication = {"bytes_up_per_client": 0, "bytes_down_per_client": 0, "rounds": 0}
    known = resolved(config, clients=shards.clients, trust="secagg", rounds=None)
    return _Run(calibrator, known, seconds, privacy, communication, [])


def _fit_federated(
    config: Config, federation: Federation, shards: Shards, progress: Progress | None
) -> _Run:
    settings = dict(config.set)
    notes = []
    nominal = "rows_per_client" in settings_of(config.method) and federation.private
    if nominal and "rows_per_client" not in settings:
        settings["rows_per_client"] = len(shards.labels) / shards.clients
        notes.append(NOMINAL_ROWS.format(settings["rows_per_client"]))
    ledger = Ledger(config.ledger, config.cap) if config.ledger is not None else None
    try:
        method: Callable[..., CalibrationStrategy] = STRATEGIES[config.method]
        strategy = method(
            federation, ledger=ledger, secure_aggregation=config.secure_aggregation, **settings
        )
        _warn_of_delta(federation)
        watch = _Watch(strategy, progress)
        unavailable = None
        if config.dropout:
            unavailable = random_dropouts(config.seed, shards.clients, config.dropout)
        start = time.perf_counter()
        calibrator = run_inline(strategy, shards, unavailable=unavailable)
        seconds = time.perf_counter() - start
    finally:
        if ledger is not None:
            ledger.close()
    known = resolved(
        config,
        clients=shards.clients,
        rounds=strategy.plan.rounds - strategy.plan.counting_rounds,
        trust=strategy.plan.trust,
        ledger=None if ledger is None else str(Path(str(config.ledger)).resolve()),
        set=settings,
    )
    privacy = _privacy(strategy)
    privacy["statement"] += notes
    return _Run(calibrator, known, seconds, privacy, _communication(strategy), watch.records)


class _Watch:
    """Keeps what was released in each round, and what it cost to send."""

    def __init__(self, strategy: CalibrationStrategy, progress: Progress | None) -> None:
        self.records: list[dict[str, Any]] = []
        self._strategy, self._progress = strategy, progress
        strategy.on_release = self._note

    def _note(self, release: Release) -> None:
        blocks = sorted({float(s) for s in release.std})
        record = {
            "round": release.round,
            "query": release.kind,
            "values": release.values.tolist(),
            "noise_std": blocks,
        }
        calibrator = self._strategy.result()
        if isinstance(calibrator, TemperatureScaling):
            record["temperature"] = calibrator.temperature
        self.records.append(record)
        if self._progress is not None:
            self._progress(len(self.records), self._strategy.plan.rounds)


def _communication(strategy: CalibrationStrategy) -> dict[str, Any]:
    return {
        "bytes_up_per_client": round(strategy.bytes_up),
        "bytes_down_per_client": round(strategy.bytes_down),
        "rounds": len(strategy.releases),
    }


def _no_privacy(mechanism: str, unit: str, said: str) -> dict[str, Any]:
    return {
        "unit": unit,
        "adjacency": "zero-out",
        "trust": "secagg",
        "epsilon": None,
        "delta": None,
        "mechanism": mechanism,
        "noise_std": 0.0,
        "noise_source": "none",
        "releases": 0,
        "statement": [said],
    }


def _privacy(strategy: CalibrationStrategy) -> dict[str, Any]:
    plan = strategy.plan
    test_rows = "The metrics on test rows are exact and not private: for the researcher's eyes."
    if not plan.private:
        said = "No differential privacy: the exact sums are released."
        record = _no_privacy("none", plan.unit, said)
        record["releases"] = len(strategy.releases)
        record["statement"].append(test_rows)
        return record
    std = plan.noise_std
    noise: float | list[float] | None = None
    if std is not None:
        noise = std[0] if len(set(std)) == 1 else list(std)
    statement = [
        f"All {plan.rounds} releases together are ({plan.epsilon:g}, {plan.delta:g})-DP for each "
        "user: a client whose rows are all removed could hardly be told from one that took part.",
        "The server sees the exact sums and is trusted to forget them; everyone else sees "
        "releases only.",
        "Seeded noise protects nobody who knows the seed: this is a simulation.",
        "The number of clients, the method and its parameters are taken as public.",
        test_rows,
    ]
    return {
        "unit": plan.unit,
        "adjacency": plan.adjacency,
        "trust": plan.trust,
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "mechanism": plan.mechanism,
        "noise_std": noise,
        "noise_source": plan.noise_source,
        "releases": len(strategy.releases),
        "noise_multiplier": plan.multiplier or None,
        "zcdp_noise_multiplier": plan.zcdp_multiplier,
        "event": plan.event,
        "statement": statement,
    }


def _warn_of_delta(federation: Federation) -> None:
    if federation.private and federation.delta >= 1 / federation.clients:
        warnings.warn(
            f"delta = {federation.delta:g} is not below 1/clients = {1 / federation.clients:g}: "
            "publishing one random user's rows would satisfy it",
            stacklevel=4,
        )


def _judge(run: _Run, data: Dataset) -> SimulationResult:
    logits, before, labels = data.test_logits, data.test_probs, data.test_labels
    if logits is None or before is None or labels is None:
        raise InputError(f"{data.name} has no test rows")
    after = before if isinstance(run.calibrator, Identity) else run.calibrator.predict_proba(logits)
    return SimulationResult(
        calibrator=run.calibrator,
        before=summary(before, labels),
        after=summary(after, labels),
        privacy=run.privacy,
        communication=run.communication,
        config=run.config,
        seconds=run.seconds,
        versions=_versions(),
        rounds=run.rounds,
        reliability={
            "before": Reliability.of(before, labels),
            "after": Reliability.of(after, labels),
        },
        test_probs=np.ascontiguousarray(after),
    )


def _versions() -> dict[str, str]:
    found = {"fedcal": fedcal.__version__, "python": platform.python_version()}
    for package in ("numpy", "scipy", "flwr", "dp-accounting"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # pragma: no branch
            found[package] = "unknown"
    return found
