"""Attacks by mail: what a coordinator puts into a kit, and what a site makes of it, by command."""

import json
import os
import shutil
import stat
from pathlib import Path

import pytest
from hospitals import SITES, Hospitals, write_rows

from fedcal.clients.site.guard import prepared
from fedcal.core.checks import FedcalError
from fedcal.secure_aggregation.keys import make_key
from fedcal.sites import site_side
from fedcal.sites.sealed import Sealed

pytestmark = pytest.mark.usefixtures("quick_figures")


@pytest.fixture
def there(tmp_path, monkeypatch):
    """Kits of a study and a site's rows; the working folder is ours."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDCAL_HOME", str(tmp_path / "own home"))
    hospitals = Hospitals(tmp_path)
    hospitals.kits()
    write_rows(tmp_path / "rows.csv")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "result.json").write_text("mine")
    return hospitals


def test_a_kit_with_keys_is_refused_although_the_site_has_lost_its_own(there, call):
    """What else a kit may not have: tests/end_to_end/test_attacks_on_studies.py."""
    call("site", "join", there.kit(), "rows.csv")
    (there.own() / "signing.pem").unlink()
    (there.kit() / "keys").mkdir()
    make_key(there.kit() / "keys" / "signing.pem")
    line = call("site", "join", there.kit(), "rows.csv", "--new-keys", code=2)
    assert "is not part of a kit" in line
    assert not (there.own() / "signing.pem").exists()


def test_keys_lie_outside_of_the_kit_and_stay_when_it_joins_again(there, call):
    call("site", "join", there.kit(), "rows.csv")
    joined = (there.folder / "alder.join").read_bytes()
    another = there.folder / "again" / "alder"
    shutil.copytree(there.folder / "sepsis-kits" / "birch", another)  # a new kit comes by mail
    for name in ("kit.json", "ca.crt", "read-me.html"):
        text = (another / name).read_text("utf-8").replace("birch", "alder")
        (another / name).write_text(text, "utf-8")
    for kit in (there.kit(), another):
        call("site", "join", kit, "rows.csv")
        assert (there.folder / "alder.join").read_bytes() == joined
    call("site", "join", another, "rows.csv", "--new-keys")
    assert (there.folder / "alder.join").read_bytes() != joined
    (there.own() / "connection.key").unlink()
    assert "has lost a key" in call("site", "join", another, "rows.csv", code=2)


def test_the_services_of_a_kit_know_where_its_keys_are(there, call):
    call("site", "join", there.kit(), "rows.csv")
    unit = (there.kit() / "fedcal-site.service").read_text("utf-8")
    assert f'"FEDCAL_HOME={there.folder}/own home"' in unit
    assert f'"{there.own()}"' in next(x for x in unit.splitlines() if "ReadWritePaths" in x)


def all_joined(there, call):
    for name in SITES:
        call("site", "join", there.kit(name), "rows.csv")
    call("study", "seal", there.file, *(there.folder / f"{name}.join" for name in SITES))


def test_what_is_put_over_the_folder_of_a_site_is_not_what_it_has_accepted(
    there, call, monkeypatch
):
    """A kit that is unpacked over the old one may have a study, rules and rows in it."""
    all_joined(there, call)
    call("site", "accept", there.kit(), there.sealed, "--yes")
    digest = json.loads(call("site", "status", there.kit(), "--json"))["digest"]
    study = (there.kit() / "study.toml").read_text("utf-8")
    (there.kit() / "study.toml").write_text(study.replace("epsilon = 4.0", "epsilon = 40.0"))
    (there.kit() / "study.sealed").write_text("{}")
    (there.kit() / "ca.crt").write_text("server.s authority in")
    (there.kit() / "rows.json").write_text('{"data": "os:getcwd"}')

    def away(*_):
        raise FedcalError("nobody listens")

    monkeypatch.setattr(site_side, "check_fleet", away)
    assert "nobody listens" in call("site", "start", there.kit(), code=1)
    state = json.loads(call("site", "status", there.kit(), "--json"))
    assert (state["digest"], state["rows"]) == (digest, str(there.folder / "rows.csv"))
    ours, sealed = prepared(there.kit() / "state"), Sealed.read(there.sealed)
    assert ours.policy == sealed.study.policy(sealed.roster.digest)
    assert ours.roster == sealed.roster
    (there.kit() / "home").mkdir()
    (there.kit() / "home" / "x").symlink_to("../../../elsewhere")
    assert "is not part of a kit" in call("site", "join", there.kit(), "rows.csv", code=2)
    shutil.rmtree(there.kit() / "home")
    (there.kit() / "home").symlink_to("../../elsewhere")
    for command in (["start"], ["status"], ["join", "rows.csv"]):
        line = call("site", command[0], there.kit(), *command[1:], code=2)
        assert "home is not part of a kit" in line
    assert (there.folder / "elsewhere" / "result.json").read_text() == "mine"


def test_a_folder_may_be_moved_and_a_copy_of_it_is_refused(there, call):
    all_joined(there, call)
    joined, moved, copied = (there.folder / "alder.join").read_bytes(), Path("moved"), Path("copy")
    shutil.move(there.kit(), moved)
    call("site", "accept", moved, there.sealed, "--yes")
    shutil.copytree(moved, copied)
    for command in (["accept", there.sealed, "--yes"], ["start"]):
        assert "has not joined" in call("site", command[0], copied, *command[1:], code=2)
    assert "is not part of a kit" in call("site", "join", copied, "rows.csv", code=2)
    call("site", "join", moved, "rows.csv")
    assert (there.folder / "alder.join").read_bytes() == joined


def test_a_link_inside_a_joined_folder_is_refused_and_no_other_user_reaches_the_keys(there, call):
    before = os.umask(0)
    try:
        call("site", "join", there.kit(), "rows.csv")
    finally:
        os.umask(before)
    home = Path(os.environ["FEDCAL_HOME"])
    for place in (home, home / "sites", home / "sites/sepsis", there.own()):
        assert stat.S_IMODE(place.stat().st_mode) == 0o700, place
    link = there.kit() / "home" / "site.log"
    link.parent.mkdir()
    link.symlink_to(there.folder / "elsewhere" / "result.json")
    assert f"{link.name} is not part of a kit" in call("site", "status", there.kit(), code=2)
