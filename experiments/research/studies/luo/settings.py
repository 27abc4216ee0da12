"""The settings of Luo et al., Appendix E.1: one of three factors varies, the others stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fedcal.core.checks import InputError

SWEEPS = ("sources", "samples", "epsilon")
"""What varies; a setting is in one of them."""

MOST_FIT = 0.5
"""Share of the rows that may be fit rows: the others are the test rows."""


@dataclass(frozen=True)
class SweepPoint:
    """One point of a sweep.

    Attributes
    ----------
    sweep
        of `SWEEPS`
    sources
        d, private data sources
    samples
        m, rows of each source
    epsilon
        of all that a source releases; unit example, add/remove
    """

    sweep: str
    sources: int
    samples: int
    epsilon: float

    @property
    def fit_rows(self) -> int:
        """Number of rows of all sources."""
        return self.sources * self.samples

    @property
    def name(self) -> str:
        """Equal for equal settings, whatever the sweep."""
        return f"{self.sources} x {self.samples}, epsilon {self.epsilon:g}"

    def to_dict(self) -> dict[str, Any]:
        """Return the point as plain values."""
        return asdict(self)


def _sweeps(
    most_sources: int, step: int, usual: int, most_samples: int, samples: int
) -> tuple[SweepPoint, ...]:
    return (
        *(SweepPoint("sources", d, 10, 1.0) for d in range(step, most_sources + 1, step)),
        *(SweepPoint("samples", usual, m, 1.0) for m in range(5, most_samples + 1, 5)),
        *(SweepPoint("epsilon", usual, samples, k / 5) for k in range(1, 11)),
    )


SUITES = {"cifar": _sweeps(250, 10, 50, 50, 30), "imagenet": _sweeps(2000, 100, 100, 100, 50)}
"""Name -> its 45 or 50 settings."""


def suite_for(rows: int) -> str:
    """ImageNet's settings where there are rows for all of them, else those of CIFAR."""
    most = max(s.fit_rows for s in SUITES["imagenet"])
    return "imagenet" if most <= MOST_FIT * rows else "cifar"


def fitting(settings: Sequence[SweepPoint], rows: int, name: str) -> list[SweepPoint]:
    """Return the settings that leave at least half of the rows for the test.

    Raises
    ------
    InputError
        There is none.
    """
    found = [s for s in settings if s.fit_rows <= MOST_FIT * rows]
    if not found:
        least = min(s.fit_rows for s in settings)
        raise InputError(
            f"{name}: {rows} rows are too few; the smallest setting has {least} fit rows, and as "
            "many must be left for the test"
        )
    return found
