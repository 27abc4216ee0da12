"""What a pipeline's file says: common options, and a table for each stage."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedcal.core.checks import one_of, positive
from fedcal.core.errors import InputError
from fedcal.experiments.runs.config import AUTO, Config, merge
from fedcal.experiments.runs.evaluated import settings
from fedcal.experiments.runs.options import layered, options_of
from fedcal.experiments.training.config import TrainConfig
from fedcal.experiments.training.splits import PARTS
from fedcal.storage.toml_files import read_toml
from fedcal.strategies import STRATEGIES
from fedcal.units import Example

COMMON = ("data", "clients", "partition", "epsilon", "delta", "unit", "trust", "engine", "seed")
LEDGER = ("ledger", "cap", "cap_delta")
_OF_SITES = ("control", "root_certificates", "timeout", "grace", "ray_address")
_OF_DATA = ("class_names", "positive", "csv")  # its files name their columns
_NOT_OF_STAGES = {*COMMON, *LEDGER, *_OF_SITES, *_OF_DATA, "noise_source"} - {"epsilon"}

AFTER = {"recalibrate": "calibrate", "sets": "conformal", "evaluate": "evaluate"}
"""Stage after the training, in their order -> the family of its methods."""

_FAMILIES = {**AFTER, "choose": "evaluate"}
_METHODS = {"recalibrate": "fednewton", "sets": "conformal"}
_ROWS = {"evaluate": "test"}
_EVALUATE = ("by", "threshold", "score", "bins", "estimand", "rows_per_subject")

CHOICE = ("accuracy", "ece")
"""Released metrics that a training may be chosen by."""


@dataclass(frozen=True)
class Stage:
    """A stage of a pipeline.

    Attributes
    ----------
    name
        of the stage, and of its folder
    kind
        "train", "choose", "recalibrate", "sets" or "evaluate"
    rows
        the part of the rows that it reads
    config
        as of `fedcal train` or `fedcal simulate`; its epsilon counts once the budget is settled
    epsilon
        what the file says, or None
    of
        the training that "choose" evaluates
    """

    name: str
    kind: str
    rows: str
    config: TrainConfig | Config
    epsilon: float | None
    of: str = ""

    @property
    def tested(self) -> bool:
        """True if its result is evaluated on the test rows, too."""
        return self.kind not in ("choose", "evaluate")


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
        the training, and others that are tried (`[[tune]]`)
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
    trainings: tuple[Stage, ...]
    choose: Stage | None
    by: str
    stages: tuple[Stage, ...]

    @property
    def private(self) -> bool:
        """True if there is a budget."""
        return math.isfinite(self.epsilon)


def load_pipeline(path: Path) -> PipelineConfig:
    """Load the pipeline of a TOML file.

    Raises InputError if the file cannot be read, or anything in it is not allowed; one line that
    names the table.
    """
    try:
        return read_pipeline(read_toml(path))
    except InputError as e:
        where = "" if str(path) in str(e) else f"{path}: "
        raise InputError(f"{where}{e}") from None


def read_pipeline(tables_given: Mapping[str, Any]) -> PipelineConfig:
    """Return the pipeline of a file's tables; see `load_pipeline`."""
    tables = ("train", "tune", "choose", *AFTER)
    for name, value in tables_given.items():
        one_of("option or table", name, (*COMMON, *LEDGER, *tables))
        kind = list if name == "tune" else Mapping
        if name in tables and not isinstance(value, kind):
            raise InputError(f"{name} must be a table, [{'[tune]' if kind is list else name}]")
    if not any(name in tables_given for name in ("train", *AFTER)):
        raise InputError(f"no stage is requested; allowed: [train], {_brackets(AFTER)}")
    top = {"unit": Example.name} | {
        k: v for k, v in tables_given.items() if k in (*COMMON, *LEDGER)
    }
    if not top.get("data"):
        raise InputError("say what the rows are: data = NAME or FILE")
    ledger = {name: top.pop(name, None) for name in LEDGER}
    whole = merge(top)
    for name in ("cap", "cap_delta"):
        if ledger[name] is not None:
            positive(name, ledger[name])
    if whole.method == AUTO or (ledger["ledger"] and math.isinf(whole.epsilon)):
        raise InputError("a pipeline without epsilon cannot be charged to a ledger")
    trainings = _trainings(tables_given, top)
    if ("tune" in tables_given) != ("choose" in tables_given):
        raise InputError(
            "[[tune]] and [choose] go together: further trainings, and the release that one of "
            "them is chosen by"
        )
    choose, by = None, CHOICE[0]
    if "choose" in tables_given:
        table = dict(tables_given["choose"])
        by = one_of("[choose]: metric", table.pop("metric", by), CHOICE)
        choose = _stage("choose", table, top)
    stages = tuple(_stage(name, tables_given[name], top) for name in AFTER if name in tables_given)
    for stage in stages:
        if stage.rows == "train" and not trainings:
            raise InputError(f"[{stage.name}]: rows = 'train' needs a table [train]")
    return PipelineConfig(
        given=tables_given,
        data=whole.data,
        seed=whole.seed,
        epsilon=whole.epsilon,
        delta=whole.delta,
        trainings=trainings,
        choose=choose,
        by=by,
        stages=stages,
        **ledger,
    )


def _brackets(names: Any) -> str:
    return ", ".join(f"[{name}]" for name in names)


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Name the table that is to blame in what is refused inside."""
    try:
        yield
    except InputError as e:
        raise InputError(f"{where}: {e}") from None


def _trainings(tables: Mapping[str, Any], top: Mapping[str, Any]) -> tuple[Stage, ...]:
    """Return the training, and those that are tried beside it."""
    if "train" not in tables:
        if "tune" in tables:
            raise InputError("[[tune]] needs a table [train], from which it differs")
        return ()
    known = options_of(TrainConfig)
    allowed = {name for name in known if name not in _NOT_OF_STAGES}
    common = {k: v for k, v in top.items() if k in known and k != "epsilon"}
    made = []
    for number, table in enumerate((tables["train"], *tables.get("tune", ()))):
        with naming(f"[[tune]] {number}" if number else "[train]"):
            if not isinstance(table, Mapping):
                raise InputError("must be a table")
            _check_keys(table, allowed | {"set"})
            own = layered(known, tables["train"], table, tables=("set",))
            epsilon = _own_epsilon(own.pop("epsilon", None), top)
            # any private epsilon stands in until the budget is settled
            stand_in = {"epsilon": epsilon or top.get("epsilon", math.inf)}
            config = TrainConfig(**layered(known, common, own, stand_in, tables=("set",)))
            name = f"tune-{number}" if number else "train"
            made.append(Stage(name, "train", "train", config, epsilon))
    return tuple(made)


def _stage(name: str, table: Mapping[str, Any], top: Mapping[str, Any]) -> Stage:
    """Return the stage of a table that is not a training."""
    known = {key for key in options_of(Config) if key not in _NOT_OF_STAGES}
    family = _FAMILIES[name]
    evaluates = family == "evaluate"
    with naming(f"[{name}]"):
        _check_keys(table, {*known, "set", "rows", *(_EVALUATE if evaluates else ())})
        own = {"method": _METHODS.get(name, "evaluate"), **table}
        parts = PARTS if evaluates else PARTS[:2]
        rows = one_of("rows", own.pop("rows", _ROWS.get(name, "calibration")), parts)
        if evaluates:
            asked = {key: own.pop(key, None) for key in _EVALUATE}
            asked["by"] = asked["by"] or "none"
            own["set"] = {**settings(**asked), **own.get("set", {})}
        epsilon = _own_epsilon(own.pop("epsilon", None), top)
        config = merge(top, own)
        if config.method not in STRATEGIES or STRATEGIES[config.method].family != family:
            names = ", ".join(n for n, one in STRATEGIES.items() if one.family == family)
            raise InputError(f"method '{config.method}' is not for this stage; allowed: {names}")
        return Stage(name, name, rows, config, epsilon)


def _check_keys(table: Mapping[str, Any], allowed: set[str]) -> None:
    for key in table:
        one_of("option", key.replace("-", "_"), sorted(allowed), "--help")


def _own_epsilon(epsilon: Any, top: Mapping[str, Any]) -> float | None:
    """Return a stage's own epsilon, which needs a pipeline with a budget."""
    if epsilon is None:
        return None
    if "epsilon" not in top or math.isinf(top["epsilon"]):
        raise InputError("a stage's epsilon is a part of the pipeline's: give that one, too")
    if positive("epsilon", epsilon) > top["epsilon"]:
        raise InputError(f"epsilon = {epsilon:g} is above the pipeline's, {top['epsilon']:g}")
    return float(epsilon)
