"""What rows look like that are read back: plain values, checked against a form."""

from __future__ import annotations

from typing import Any

LARGEST = 1e100
"""No number of a row is larger; the squares of such numbers are finite."""


def has_form(value: Any, form: Any) -> bool:
    """Whether a value that was read from JSON has the form of one that was written.

    Parameters
    ----------
    form : a type (`float` and `int`: finite, and `int` not negative); None; a dict: these keys,
        values of these forms; a list of one form: one or more of it; a tuple: one of these forms
    """
    if isinstance(form, dict):
        if not isinstance(value, dict) or value.keys() != form.keys():
            return False
        return all(has_form(value[key], part) for key, part in form.items())
    if isinstance(form, list):
        return isinstance(value, list) and value != [] and all(has_form(v, form[0]) for v in value)
    if isinstance(form, tuple):
        return any(has_form(value, part) for part in form)
    if form in (float, int):
        least = 0 if form is int else -LARGEST
        return type(value) is form and least <= value <= LARGEST
    return value is None if form is None else isinstance(value, form)
