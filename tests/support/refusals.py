"""Tables of bad input: every line of one is refused, in one line that says why."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from fedcal.core.checks import InputError


def each_is_refused(
    table: Iterable[tuple[Any, str]], call: Callable[[Any], object], start: str = "", most: int = 0
) -> None:
    """`table` holds what is given and a pattern; messages begin with `start`, of `most` letters."""
    wrong = []
    for given, pattern in table:
        try:
            call(given)
            message = None
        except InputError as error:
            message = str(error)
        if message is None or not re.search(pattern, message) or "\n" in message:
            wrong.append(f"{given!r:.200}: not {pattern!r}, but {message!r}")
        elif not message.startswith(start) or len(message) >= (most or 10**9):
            wrong.append(f"{given!r:.200}: {message!r}")
    assert not wrong, "\n".join(wrong)


def refused(
    message: str, call: Callable[..., object], *given: Any, error: type = InputError, **named: Any
) -> None:
    """`call` with what is given raises this error, in one line that matches `message`."""
    with pytest.raises(error, match=message) as caught:
        call(*given, **named)
    assert "\n" not in str(caught.value)
