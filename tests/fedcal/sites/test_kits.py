"""What a coordinator makes: kits without secrets, certificates that last, units that are units."""

import datetime
import shutil

import compose
import pytest
from cryptography import x509
from hospitals import SITES, write_rows
from html_page import page_of
from refusals import refused
from studies import TODAY

from fedcal.cli import main as cli
from fedcal.secure_aggregation.roster import in_words
from fedcal.sites.joining import join
from fedcal.sites.kits import seal
from fedcal.sites.study_file import Study

pytestmark = pytest.mark.usefixtures("quick_figures")


def test_a_kit_says_all_and_holds_no_secret(there):
    output = "\n".join(there.kits(groups=("a & b",), question="Is <it> good?"))
    kit = there.kit()
    names = {"study.toml", "kit.json", "ca.crt", "read-me.html"}
    assert {p.name for p in kit.iterdir()} == names  # nothing that can be run
    for path in there.folder.joinpath("sepsis-kits").rglob("*.*"):
        assert "PRIVATE KEY" not in path.read_text("utf-8"), path
    assert Study.read(kit / "study.toml").digest == Study.read(there.file).digest
    page = page_of(kit / "read-me.html")
    assert "Is <it> good?" in page.text
    assert [a for a in page.addresses if not a.startswith("data:")] == []  # it is read offline
    for folder in ("coordinator", "server"):
        home = there.folder / f"sepsis-{folder}"
        assert home.stat().st_mode & 0o777 == 0o700
        secret = [p for p in home.iterdir() if p.suffix in (".key", ".pem")]
        assert {p.stat().st_mode & 0o777 for p in secret} == {0o600}
    assert not (there.folder / "sepsis-server" / "ca.key").exists()
    assert str(there.folder / "sepsis-server") in output


def test_keys_and_certificates_stay_until_the_server_moves(there):
    there.kits()
    own = there.folder / "sepsis-coordinator"
    before = {p.name: p.read_bytes() for p in own.iterdir()}
    shutil.rmtree(there.folder / "sepsis-server")  # it was carried away
    there.kits(epsilon=2.0)
    assert {p.name: p.read_bytes() for p in own.iterdir()} == before
    assert (there.folder / "sepsis-server" / "server.key").read_bytes() == before["server.key"]
    assert Study.read(there.kit() / "study.toml").epsilon == 2.0
    there.file.write_text(there.file.read_text("utf-8").replace("host:9092", "127.0.0.2:9092"))
    output = cli.exit_code_of(["study", "kit", str(there.file)])
    after = {p.name: p.read_bytes() for p in own.iterdir()}
    assert output == 0
    assert {name for name in after if after[name] != before[name]} == {"server.crt", "server.key"}
    made = x509.load_pem_x509_certificate(after["server.crt"])
    assert made.not_valid_after_utc.date() > TODAY + datetime.timedelta(days=365)


def test_folders_in_which_sites_have_joined_are_not_to_be_sent(there):
    words = "joined in these folders: send nothing of them"
    assert words not in "\n".join(there.kits())
    join(there.kit("birch"), str(write_rows(there.folder / "rows.csv")))
    (there.kit("cedar") / "state").mkdir()  # of another user, or earlier version
    assert f"note: birch and cedar {words}" in there.kits()


def test_sealing_says_the_digest_and_whom_it_misses_and_status_what_is_next(there, call):
    there.joined()
    joins = [there.folder / f"{site}.join" for site in SITES]
    refused(".join file of cedar is needed", seal, there.file, joins[:2])
    assert "study seal, here, once all sites" in call("study", "status", there.file)
    shown = call("study", "seal", there.file, *joins)
    assert in_words(there.seal().digest) in shown
    assert "fedcal study serve, here" in call("study", "status", there.file)
    shutil.rmtree(there.folder / "sepsis-coordinator")
    refused("coordinator.pem is not there", seal, there.file, joins)


def test_a_service_of_the_compose_file_can_do_no_more_than_it_must():
    services = compose.read()["services"]
    for service in services.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        open_ = {"privileged", "cap_add", "network_mode", "pid", "ipc", "env_file"}
        assert set(service) & open_ == set()
        user, group = service["user"].split(":")
        assert int(user) == int(group) > 0
        assert service["networks"] == ["fleet"]
        assert service["environment"]["FEDCAL_HEALTH"] in service["healthcheck"]["test"][-1]
        # the control port has no login: it listens in the server's container alone
        assert not any(word.startswith(("--insecure", "--control")) for word in service["command"])
    assert [s["ports"] for s in services.values() if "ports" in s] == [["127.0.0.1:9092:9092"]]
    assert compose.read()["networks"] == {"fleet": {"internal": True}}
