"""A lock file: refused while another holds it, or waited for."""

from threading import Thread

import pytest

from fedcal.core.checks import InputError
from fedcal.storage.atomic import locked


def test_one_holds_it_and_others_are_refused_or_wait(tmp_path):
    path, seen = tmp_path / "lock", []

    def wait():
        with locked(path, "taken", wait=True):
            seen.append("waited")

    with locked(path, "taken"):
        with pytest.raises(InputError, match="taken"), locked(path, "taken"):
            pass
        other = Thread(target=wait)
        other.start()
        other.join(0.2)
        assert other.is_alive()
        assert seen == []
    other.join(10)
    assert seen == ["waited"]
    with pytest.raises(InputError, match="cannot write"), locked(tmp_path / "no" / "lock", ""):
        pass
