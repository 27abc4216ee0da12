"""What people get stays what is stored beside this file; `make golden` writes it anew."""

import re

import pytest
from golden import CASES, GOLDEN, machine, written

FLOAT = re.compile(r"(-?\d+\.\d+(?:e[+-]?\d+)?|-?\d+e[+-]?\d+)")
SAME_MACHINE = (GOLDEN / "machine").read_text() == machine()


def tolerance(token: str) -> float:
    """1e-9 on the machine that wrote the files, else 1e-6 or a unit of the last digit printed."""
    if SAME_MACHINE:
        return 1e-9 * max(1.0, abs(float(token)))
    mantissa, _, exponent = token.partition("e")
    digit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return max(digit, 1e-6 * max(1.0, abs(float(token))))


def differences(stored: str, text: str) -> list[str]:
    """Return the lines that differ: text and integers exactly, floats beyond their tolerance."""
    lines, found = stored.splitlines(), text.splitlines()
    wrong = [f"{len(lines)} lines stored, {len(found)} now"] if len(lines) != len(found) else []
    for old, new in zip(lines, found, strict=False):
        a, b = FLOAT.split(old), FLOAT.split(new)
        same = a[::2] == b[::2] and all(
            abs(float(x) - float(y)) <= tolerance(x) for x, y in zip(a[1::2], b[1::2], strict=True)
        )
        wrong += [] if same else [f"- {old}\n+ {new}"]
    return wrong


@pytest.mark.parametrize("case", CASES)
def test_what_people_get_is_what_is_stored(case):
    found = written(case)
    wrong = {
        name: differences((GOLDEN / name).read_text("utf-8"), text) for name, text in found.items()
    }
    shown = "\n".join(f"{name}:\n" + "\n".join(d[:20]) for name, d in wrong.items() if d)
    assert not shown, f"{shown}\nread the difference; if it is right: make golden"
