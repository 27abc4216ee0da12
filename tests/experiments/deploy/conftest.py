"""What tests of `fedcal site ...` share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fedcal.experiments.cli import _run

Says = Callable[..., tuple[int, str, str]]


@pytest.fixture
def says(capsys: pytest.CaptureFixture[str]) -> Says:
    """Runs a command: exit code, stdout and stderr."""

    def call(*words: object) -> tuple[int, str, str]:
        code = _run([str(word) for word in words])
        return (code, *capsys.readouterr())

    return call
