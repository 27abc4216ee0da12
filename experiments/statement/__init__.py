"""The privacy record of a run: numbers for scripts, and sentences for people.

`record` puts it together, `sentences` turns its facts into words.
"""

from __future__ import annotations

from fedcal.experiments.statement.record import (
    HELD_OUT,
    NOT_NATURAL,
    about_subjects,
    of_plan,
    without_privacy,
)
from fedcal.experiments.statement.sentences import large_delta

__all__ = [
    "HELD_OUT",
    "NOT_NATURAL",
    "about_subjects",
    "large_delta",
    "of_plan",
    "without_privacy",
]
