"""Comparisons that README and docs quote: what `fedcal compare` runs, and what of it ships.

They are no experiments of a paper and have no claims; their files lie beside those of the
experiments and are made by the same command.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from fedcal.core.checks import TooLittle
from fedcal.experiments import demo
from fedcal.experiments.research.studies.registry import study
from fedcal.experiments.runs.comparison import compare
from fedcal.experiments.runs.comparison.table import Line
from fedcal.experiments.runs.files import in_json

COMPARISONS: Mapping[str, Mapping[str, Any]] = {
    "demo": demo.options(),
    **study("own")["comparisons"],
}
"""Name of the file -> options of `compare`."""

_FACTS = (
    *("data", "method", "label", "settings", "clients", "partition", "epsilon", "delta", "unit"),
    *("trust", "sampling_rate", "rounds", "seeds", "noise_std", "mechanism", "bytes_up"),
    *("bytes_down", "baseline", "failures"),
)
_METRICS = ("accuracy", "ece", "classwise_ece", "nll")


def command(name: str) -> str:
    """Return the command line that runs a comparison."""
    options = COMPARISONS[name]

    def text(value: Any) -> str:
        values = value if isinstance(value, (list, tuple)) else [value]
        said = ",".join(f"{v:g}" if isinstance(v, float) else str(v) for v in values)
        return f'"{said}"' if "[" in said else said

    return " ".join(["fedcal compare", *(f"--{k} {text(v)}" for k, v in options.items())])


def measure(name: str, jobs: int | None = None) -> list[Line]:
    """Run a comparison; its lines, each with what ships of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TooLittle)  # it is what these runs are to show
        return [_kept(line) for line in compare(jobs=jobs, **COMPARISONS[name]).cells]


def _kept(line: Line) -> Line:
    """Facts, and mean and spread of the metrics and the seconds, to six digits."""
    spreads = {m: line["after"][m] for m in _METRICS} | {"seconds": line["seconds"]}
    after = {
        name: {k: None if of[k] is None else float(f"{of[k]:.6g}") for k in ("mean", "std")}
        for name, of in spreads.items()
    }
    seconds = after.pop("seconds")
    epsilon = in_json(line["epsilon"])
    return {k: line[k] for k in _FACTS} | {"epsilon": epsilon, "after": after, "seconds": seconds}
