"""Commands as people type them."""

import pytest
from hospitals import Hospitals

from fedcal.cli.main import exit_code_of


@pytest.fixture
def there(tmp_path, monkeypatch):
    """A study of three hospitals that begins; the working folder is ours."""
    monkeypatch.chdir(tmp_path)
    return Hospitals(tmp_path)


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
