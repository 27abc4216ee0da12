"""What a pipeline's file says: common options, and a table for each stage."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedcal.core.checks import one_of, positive
from fedcal.core.errors import InputError
from fedcal.experiments.runs.config import AUTO, Config, merge, read_toml
from fedcal.experiments.runs.evaluated import settings
from fedcal.experiments.runs.options import layered, options_of
from fedcal.experiments.training.config import TrainConfig
from fedcal.experiments.training.splits import PARTS
from fedcal.strategies import STRATEGIES
from fedcal.units import Example

COMMON = ("data", "clients", "partition", "epsilon", "delta", "unit", "trust", "engine", "seed")
LEDGER = ("ledger", "cap", "cap_delta")
_OF_SITES = ("control", "root_certificates", "timeout", "grace", "ray_address")
_OF_DATA = ("class_names", "positive")  # its files name their columns
_NOT_OF_STAGES = {*COMMON, *LEDGER, *_OF_SITES, *_OF_DATA, "noise_source"} - {"epsilon"}

AFTER = {"recalibrate": "calibrate", "sets": "conformal", "evaluate": "evaluate"}
"""Stage after the training, in their order -> the family of its methods."""

_METHODS = {"recalibrate": "fednewton", "sets": "conformal", "evaluate": "evaluate"}
_ROWS = {"recalibrate": "calibration", "sets": "calibration", "evaluate": "test"}
_EVALUATE = ("by", "threshold", "score", "bins", "estimand", "rows_per_subject")

CHOICE = ("accuracy", "ece")
"""Released metrics that a training may be chosen by."""


@dataclass(frozen=True)
class StageConfig:
    """A stage that is no training.

    Attributes
    ----------
    rows
        the part of the rows that it reads
    config
        as of `fedcal simulate`; its epsilon is inf where the file says none
    epsilon
        what the file says
    """

    rows: str
    config: Config
    epsilon: float | None


@dataclass(frozen=True)
class PipelineConfig:
    """A pipeline.

    Attributes
    ----------
    given
        the file's tables as they are
    data, seed, epsilon, delta
        common to all stages; epsilon of all of them together
    ledger, cap, cap_delta
        file that is charged; None = one in the folder of the results, capped at epsilon
    trainings
        options of the training, and of others that are tried (`[[tune]]`); epsilon only where
        the file says one
    choose, by
        how each of several trainings is evaluated, and by which metric one is taken
    stages
        those after the training
    """

    given: Mapping[str, Any] = field(repr=False)
    data: str
    seed: int
    epsilon: float
    delta: float
    ledger: str | None
    cap: float | None
    cap_delta: float | None
    trainings: tuple[TrainConfig, ...]
    epsilons: tuple[float | None, ...]
    choose: StageConfig | None
    by: str
    stages: Mapping[str, StageConfig]

    @property
    def private(self) -> bool:
        """Whether there is a budget."""
        return math.isfinite(self.epsilon)


def load_pipeline(path: Path) -> PipelineConfig:
    """The pipeline of a TOML file.

    Raises
    ------
    InputError
        If the file cannot be read, or anything in it is not allowed; one line that names the
        table.
    """
    try:
        return read_pipeline(read_toml(path))
    except InputError as e:
        where = "" if str(path) in str(e) else f"{path}: "
        raise InputError(f"{where}{e}") from None


def read_pipeline(given: Mapping[str, Any]) -> PipelineConfig:
    """The pipeline of a file's tables; see `load_pipeline`."""
    tables = ("train", "tune", "choose", *AFTER)
    for name, value in given.items():
        one_of("option or table", name, (*COMMON, *LEDGER, *tables))
        kind = list if name == "tune" else Mapping
        if name in tables and not isinstance(value, kind):
            raise InputError(f"{name} must be a table, [{'[tune]' if kind is list else name}]")
    if not any(name in given for name in ("train", *AFTER)):
        raise InputError(f"no stage is asked for; allowed: [train], {_brackets(AFTER)}")
    top = {"unit": Example.name} | {k: v for k, v in given.items() if k in (*COMMON, *LEDGER)}
    if not top.get("data"):
        raise InputError("say what the rows are: data = NAME or FILE")
    ledger = {name: top.pop(name, None) for name in LEDGER}
    whole = merge(top)
    for name in ("cap", "cap_delta"):
        if ledger[name] is not None:
            positive(name, ledger[name])
    if whole.method == AUTO or (ledger["ledger"] and math.isinf(whole.epsilon)):
        raise InputError("a pipeline without epsilon cannot be charged to a ledger")
    trainings, epsilons = _trainings(given, top)
    if ("tune" in given) != ("choose" in given):
        raise InputError(
            "[[tune]] and [choose] go together: further trainings, and the release that one of "
            "them is chosen by"
        )
    choose, by = None, CHOICE[0]
    if "choose" in given:
        table = {"rows": "calibration", **given["choose"]}
        by = one_of("[choose]: metric", table.pop("metric", by), CHOICE)
        choose = _stage("choose", "evaluate", table, top)
    stages = {name: _stage(name, name, given[name], top) for name in AFTER if name in given}
    if not trainings:
        for name, stage in stages.items():
            if stage.rows == "train":
                raise InputError(f"[{name}]: rows = 'train' needs a table [train]")
    return PipelineConfig(
        given=given,
        data=whole.data,
        seed=whole.seed,
        epsilon=whole.epsilon,
        delta=whole.delta,
        trainings=trainings,
        epsilons=epsilons,
        choose=choose,
        by=by,
        stages=stages,
        **ledger,
    )


def _brackets(names: Any) -> str:
    return ", ".join(f"[{name}]" for name in names)


def _trainings(
    given: Mapping[str, Any], top: Mapping[str, Any]
) -> tuple[tuple[TrainConfig, ...], tuple[float | None, ...]]:
    """The training, those that are tried beside it, and the epsilons that are said of them."""
    if "train" not in given:
        if "tune" in given:
            raise InputError("[[tune]] needs a table [train], from which it differs")
        return (), ()
    known = options_of(TrainConfig)
    allowed = {name for name in known if name not in _NOT_OF_STAGES}
    made, epsilons = [], []
    for number, table in enumerate((given["train"], *given.get("tune", ()))):
        where = f"[[tune]] {number}" if number else "[train]"
        try:
            if not isinstance(table, Mapping):
                raise InputError("must be a table")
            _check_keys(table, allowed | {"set"})
            own = layered(known, given["train"], table, tables=("set",))
            epsilon = own.pop("epsilon", None)
            epsilons.append(_own_epsilon(epsilon, top))
            common = {k: v for k, v in top.items() if k in known and k != "epsilon"}
            # any private epsilon stands in until the budget is settled
            stand_in = {"epsilon": epsilon or top.get("epsilon", math.inf)}
            made.append(TrainConfig(**layered(known, common, own, stand_in, tables=("set",))))
        except InputError as e:
            raise InputError(f"{where}: {e}") from None
    return tuple(made), tuple(epsilons)


def _stage(name: str, kind: str, table: Mapping[str, Any], top: Mapping[str, Any]) -> StageConfig:
    """The table of a stage that is no training."""
    known = {key for key in options_of(Config) if key not in _NOT_OF_STAGES}
    extra = _EVALUATE if kind == "evaluate" else ()
    try:
        _check_keys(table, {*known, "set", "rows", *extra})
        fit = PARTS if kind == "evaluate" else PARTS[:2]
        rows = one_of("rows", table.get("rows", _ROWS[kind]), fit)
        own = {"method": _METHODS[kind], **table}
        own.pop("rows", None)
        if extra:
            asked = {key: own.pop(key, None) for key in extra}
            asked["by"] = asked["by"] or "none"
            own["set"] = {**settings(**asked), **own.get("set", {})}
        epsilon = _own_epsilon(own.pop("epsilon", None), top)
        config = merge(top, own)
        family = AFTER[kind]
        if config.method not in STRATEGIES or STRATEGIES[config.method].family != family:
            names = ", ".join(n for n, one in STRATEGIES.items() if one.family == family)
            raise InputError(f"method '{config.method}' is not for this stage; allowed: {names}")
        return StageConfig(rows, config, epsilon)
    except InputError as e:
        raise InputError(f"[{name}]: {e}") from None


def _check_keys(table: Mapping[str, Any], allowed: set[str]) -> None:
    for key in table:
        one_of("option", key.replace("-", "_"), sorted(allowed), "--help")


def _own_epsilon(epsilon: Any, top: Mapping[str, Any]) -> float | None:
    """A stage's own epsilon, which only a pipeline with a budget has."""
    if epsilon is None:
        return None
    if "epsilon" not in top or math.isinf(top["epsilon"]):
        raise InputError("a stage's epsilon is a part of the pipeline's: give that one, too")
    if positive("epsilon", epsilon) > top["epsilon"]:
        raise InputError(f"epsilon = {epsilon:g} is above the pipeline's, {top['epsilon']:g}")
    return float(epsilon)
