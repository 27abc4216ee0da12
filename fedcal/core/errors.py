"""Errors that fedcal raises on purpose.

::

    FedcalError                   exit code 1
    |-- InputError                exit code 2: something the user gave is not allowed
    |   |-- NoEffect              ... or would change nothing in this run
    |   |-- BudgetExceeded        ... or the privacy ledger refuses the charge
    |   `-- ContributionRefused   ... or a client's unbounded contribution does not fit the ring
    |-- PrivacyError              exit code 1: a release that its plan does not cover
    `-- RoundFailed               exit code 1: sampled clients did not answer

    Interrupted                   Ctrl-C, where something was kept

Each message is one line: what is wrong, where, and what is allowed.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class FedcalError(Exception):
    """Root of the tree; `exit_code` is what the command line returns."""

    exit_code = 1


class InputError(FedcalError, ValueError):
    """A value, a file or an option that is not allowed."""

    exit_code = 2


@contextmanager
def located(where: str) -> Iterator[None]:
    """Put `where` in front of the message of an InputError that the block raises."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def reason(error: OSError) -> str:
    """Why a file cannot be written; NumPy says only how much of an array was."""
    return error.strerror or f"{error} (is the disk full?)"


@contextmanager
def system_errors(what: str) -> Iterator[None]:
    """Turn an error of the system in the block into an InputError: `what` fails, and why."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{what}: {reason(error)}") from None


@contextmanager
def damaged(what: str, *more: type[Exception]) -> Iterator[None]:
    """Turn an error over what a file or a message holds into an InputError: `what`.

    Of a key that is missing the message has the name; `more` errors are those of other libraries.
    An InputError of the block stays as it is.
    """
    wrong = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
    kinds: tuple[type[Exception], ...] = (*wrong, *more)
    try:
        yield
    except InputError:
        raise
    except kinds as error:
        missing = f": {str(error)[:80]} is missing" if isinstance(error, KeyError) else ""
        raise InputError(f"{what}{missing}") from None


@contextmanager
def blamed(what: str) -> Iterator[None]:
    """Turn whatever else a user's own code raises in the block into an InputError of one line."""
    try:
        yield
    except InputError:
        raise
    except Exception as e:  # noqa: BLE001  it is the user's own code
        line = str(e).strip().partition("\n")[0]
        raise InputError(f"{what} fails: {type(e).__name__}: {line}") from None


class NoEffect(InputError):
    """A parameter `name` was given that this run does not use."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name


class BudgetExceeded(InputError):
    """The ledger refuses a charge; nothing was released."""


class ContributionRefused(InputError):
    """An unbounded contribution is not finite or leaves the ring; or one has another shape."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C; the message says what was kept, and how to go on."""


class TooLittle(UserWarning):
    """A run has too little to make the model better: too few clients, rows or classes."""


class PrivacyError(FedcalError):
    """A release was attempted that its privacy plan does not cover."""


class RoundFailed(FedcalError):
    """Clients were asked and none of them (or too few) answered."""
