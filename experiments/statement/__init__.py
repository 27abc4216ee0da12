"""The privacy record of a run: numbers for scripts, and sentences for people.

`record` puts it together, `promise` says what is guaranteed to whom, `exposure` who sees what and
what nothing protects.
"""

from __future__ import annotations

from fedcal.experiments.statement.exposure import TEST_ROWS
from fedcal.experiments.statement.promise import in_short, large_delta, sets_noise
from fedcal.experiments.statement.record import (
    HELD_OUT,
    NOT_NATURAL,
    about_subjects,
    of_plan,
    without_privacy,
)

__all__ = [
    "HELD_OUT",
    "NOT_NATURAL",
    "TEST_ROWS",
    "about_subjects",
    "in_short",
    "large_delta",
    "of_plan",
    "sets_noise",
    "without_privacy",
]
