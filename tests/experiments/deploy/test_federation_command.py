"""`fedcal site key` and `fedcal site federation`: keys are made, rosters shown and signed."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable
from pathlib import Path

from fedcal.secure_aggregation.keys import read_key
from fedcal.secure_aggregation.roster import Roster

Says = Callable[..., tuple[int, str, str]]


def test_a_key_is_made_once_and_for_this_user_alone(tmp_path: Path, says: Says) -> None:
    file = tmp_path / "signing.pem"
    code, out, err = says("site", "key", file)
    assert (code, err) == (0, "")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = file.read_bytes()
    assert out.splitlines()[-1] == read_key(file).public.hex()
    assert says("site", "key", file) == (0, out, "")
    assert file.read_bytes() == before
    file.chmod(0o640)
    code, out, err = says("site", "key", file)
    assert (code, out) == (2, "")
    assert "can be read by others" in err
    code, _, err = says("site", "key", tmp_path / "none" / "signing.pem")
    assert (code, len(err.splitlines())) == (2, 1)


def test_a_federation_is_shown_and_signed(tmp_path: Path, says: Says) -> None:
    file, key = tmp_path / "federation.toml", tmp_path / "0.pem"
    for sites, threshold, absent, colluding in ((3, 2, 1, 0), (3, 3, 0, 2), (7, 5, 2, 2)):
        text = f'# our hospitals\nthreshold = {threshold}\nname = "hearts"\nclasses = ["a", "b"]\n'
        for n in range(sites):
            public = says("site", "key", tmp_path / f"{n}.pem")[1].split()[-1]
            text += f'[[site]]\nname = "hospital {n}"\nkey = "{public}"\n'
        file.write_text(text)
        code, out, err = says("site", "federation", file)
        assert (code, err) == (0, "")
        digest = Roster.read(file).digest
        groups = re.search(r"^(?:[0-9a-f]{4} ){15}[0-9a-f]{4}$", out, re.MULTILINE)
        assert groups is not None
        assert groups[0].replace(" ", "") == digest
        assert f"may be absent: {absent}\n" in out
        assert f"work with the server: {colluding}\n" in out
        assert "signed by: nobody" in out
        assert out.count("hospital ") == sites

    code, out, err = says("site", "federation", file, "--sign", key)
    assert (code, err) == (0, "")
    assert file.read_text().startswith(text)  # comments stay
    assert Roster.read(file).digest == digest
    assert Roster.read(file).coordinator == read_key(key).public
    assert "signed by: " + read_key(key).public.hex() in out
    code, _, err = says("site", "federation", file, "--sign", key)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "take its [signature] out first" in err
    file.write_text(file.read_text().replace("hospital 1", "hospital one"))
    code, out, err = says("site", "federation", file)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "signature is not one of this roster" in err
