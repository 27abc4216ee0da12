"""Commands as people type them."""

import pytest

from fedcal.cli.main import exit_code_of


@pytest.fixture
def call(capsys, monkeypatch):
    """Calls a command: stdout; or, where a code is expected, the one line of its refusal."""
    monkeypatch.setenv("COLUMNS", "2000")

    def done(*words, code=0):
        capsys.readouterr()
        got = exit_code_of([str(word) for word in words])
        out, err = capsys.readouterr()
        assert got == code, err
        if code:
            (line,) = err.splitlines()
            return line
        return out

    return done
