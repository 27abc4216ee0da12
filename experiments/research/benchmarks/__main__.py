"""What things cost, and whether they do what they claim: `make bench`.

A missed target is shown, it does not fail the run; a refuted claim does.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedcal.core.checks import InputError
from fedcal.experiments.research.benchmarks import (
    audit,
    evaluation,
    federated,
    flower_secagg,
    luo,
    plans,
    pooled,
    samplers,
    scale,
    secure_sums,
    sets,
    sites,
    training,
)
from fedcal.experiments.research.benchmarks.harness import Benchmark, beside, run

BENCH = {
    **{**pooled.CASES, **federated.CASES, **evaluation.CASES, **sets.CASES},
    **training.CASES,
}
"""Name of `--only` -> what makes the case."""

LONG = ("temperature-large", "engine-round-500", "engine-run-500")
"""What `make bench` leaves to `make bench-all`, so that it ends within ten minutes on two cores."""

BENCHMARKS: Mapping[str, Benchmark] = {
    "bench": beside("our work beside our peers', in turns", BENCH, LONG),
    "samplers": beside("what a draw of noise costs", samplers.CASES),
    "audit": audit.BENCHMARK,
    "luo": beside("trials of Luo et al., beside a plain loop", luo.CASES),
    "plans": plans.BENCHMARK,
    "scale": scale.BENCHMARK,
    "sets": sets.BENCHMARK,
    "sites": sites.BENCHMARK,
    "secure-sums": secure_sums.BENCHMARK,
    "flower-secagg": flower_secagg.BENCHMARK,
}
"""By the name that the command takes."""

OPTIONS: Mapping[str, tuple[dict[str, Any], str]] = {
    "only": ({"action": "append"}, "a row; repeatable"),
    "all": ({"action": "store_true"}, "rows that take long, too"),
    "quick": ({"action": "store_true"}, "small sizes, two repetitions, no targets"),
    "trials": ({"type": int}, "runs in each of two worlds"),
    "error": ({"type": float}, "that any row's bound is wrong"),
    "seed": ({"type": int}, "of the attacked runs"),
    "data": ({}, "shipped names, with commas"),
    "seeds": ({"type": int}, "of each run"),
}
"""Option -> how it is read, and what it means; the defaults are those of `Benchmark.rows`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks that are named; 1 if one found what must not be."""
    listed = "\n".join(f"  {name:10}{b.about}" for name, b in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m fedcal.experiments.research.benchmarks",
        description=f"{__doc__}\n\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="?", default="bench", choices=BENCHMARKS, metavar="NAME")
    parser.add_argument("--out", type=Path, default=Path("bench-out"), help="folder for the files")
    for key, (how, meaning) in OPTIONS.items():
        takers = ", ".join(name for name, b in BENCHMARKS.items() if key in b.options)
        parser.add_argument(f"--{key}", default=None, help=f"{meaning} ({takers})", **how)
    given = {k: v for k, v in vars(parser.parse_args(arguments)).items() if v is not None}
    name, out = given.pop("name"), given.pop("out")
    for key in given:
        if key not in BENCHMARKS[name].options:
            parser.error(f"--{key} is not an option of {name}")
    try:
        return 0 if run(name, BENCHMARKS[name], given, out) else 1
    except InputError as e:
        parser.error(str(e))


if __name__ == "__main__":
    raise SystemExit(main())
