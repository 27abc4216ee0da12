"""What things cost, and whether they do what they claim: `make bench`.

A missed target is shown, it does not fail the run; a refuted claim does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedcal.experiments.benchmarks import audit, beside, luo, planner, samplers
from fedcal.experiments.benchmarks.harness import Benchmark, command

BENCHMARKS: Mapping[str, Benchmark] = {
    "bench": beside.BENCHMARK,
    "samplers": samplers.BENCHMARK,
    "audit": audit.BENCHMARK,
    "luo": luo.BENCHMARK,
    "planner": planner.BENCHMARK,
}
"""By the name that the command takes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks that are named."""
    return command(BENCHMARKS, arguments, __doc__ or "")


if __name__ == "__main__":
    raise SystemExit(main())
