"""docker-compose.yml: valid, and as closed as our rules say."""

import subprocess
from pathlib import Path
from typing import Any

import compose
import jsonschema
from check_jsonschema.builtin_schemas import get_builtin_schema

FILE = compose.read()
MORE = compose.read(file=compose.ROOT / "docker-compose.protocol.yml")
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
SITES = ("site-a", "site-b", "site-c")


def wrong_of(file: dict[str, Any]) -> list[str]:
    schema = get_builtin_schema("vendor.compose-spec")
    validator = jsonschema.validators.validator_for(schema)(schema)
    return [f"{e.json_path}: {e.message}" for e in validator.iter_errors(file)]


def test_the_files_are_compose_files():
    assert wrong_of(FILE) == wrong_of(MORE) == []
    assert wrong_of({**FILE, "services": {"a": {"image": "x", "read-only": True}}})
    assert SERVICES.keys() == {"superlink", "executor", *SITES, "tools"}


def test_a_service_can_do_no_more_than_it_must():
    for name, service in SERVICES.items():
        assert service["init"] is service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["restart"] == ("no" if name == "tools" else "unless-stopped")
        assert service["deploy"]["resources"]["limits"].keys() == {"cpus", "memory", "pids"}
        assert service["image"] == "fedcal"
        assert service["logging"]["options"].keys() == {"max-size", "max-file"}
        open_ = {"privileged", "cap_add", "network_mode", "pid", "ipc", "env_file"}
        assert set(service) & open_ == set()
        user, group = service["user"].split(":")
        assert int(user) == int(group) > 0
        assert [t.partition(":")[0] for t in service["tmpfs"]] == ["/tmp"]
        written = [service["environment"][n] for n in ("HOME", "FLWR_HOME", "MPLCONFIGDIR")]
        assert all(Path(folder).is_relative_to("/tmp") for folder in written)
        assert "healthcheck" in service or name == "tools"
        assert "--insecure" not in service["command"]


def test_only_the_fleet_port_is_open_and_where_the_operator_says():
    superlink = SERVICES["superlink"]
    control, *_ = ports = superlink["ports"]
    assert ports == ["127.0.0.1:8000:8000", "127.0.0.1:9092:9092"]
    for address in ("0.0.0.0:9092", "10.0.0.5:443"):
        open_ = compose.read({"FEDCAL_FLEET_PUBLISH": address})["services"]["superlink"]
        assert open_["ports"] == [control, f"{address}:9092"]
    assert {n for n, service in SERVICES.items() if "ports" in service} == {"superlink"}
    # the control port has no login: it listens where no site is
    host = superlink["networks"]["control"]["ipv4_address"]
    asked = {f"--host={host}", "--enable-supernode-auth", "--isolation=process"}
    assert asked <= set(superlink["command"])
    for name in SERVICES.keys() - {"superlink"}:  # no site is on both
        assert SERVICES[name]["networks"] == (["fleet"] if name in SITES else ["control"])
    assert FILE["networks"]["fleet"] == {"internal": True}
    # a site on a machine of its own
    given = {"FEDCAL_FLEET": "calibration.example.org:9092", "FEDCAL_INTERNAL": "false"}
    alone = compose.read(given)
    assert "--fleet=calibration.example.org:9092" in alone["services"]["site-a"]["command"]
    assert alone["networks"]["fleet"] == {"internal": False}
    assert "depends_on" not in alone["services"]["site-a"]


def test_a_site_has_its_own_key_data_and_state_and_no_other():
    for name in SITES:
        site = name.removeprefix("site-")
        assert SERVICES[name]["secrets"] == [{"source": f"{site}.key", "target": "site.key"}]
        assert SERVICES[name]["configs"] == [{"source": "ca.crt", "target": "/ca.crt"}]
        state, books, data = SERVICES[name]["volumes"]
        assert state == {"type": "volume", "source": name, "target": "/state"}
        assert books == {"type": "volume", "source": f"books-{site}", "target": "/books"}
        assert "--key-records=/books/key.records" in SERVICES[name]["command"]
        assert (data["source"], data["read_only"]) == (f"./data/{site}.npz", True)
        assert data["bind"] == {"create_host_path": False}  # else a missing file is a new folder
    others = {s for n in SERVICES if n not in SITES for s in SERVICES[n].get("secrets", ())}
    assert others == {"server.key", "executor.key"}


BUILD = SERVICES["superlink"]["build"]
IMAGE = compose.ROOT / BUILD["dockerfile"]
STAGES = IMAGE.read_text("utf-8").replace("\\\n", "").split("\nFROM ")[1:]
"""Of the Dockerfile; each begins with its base."""


def test_the_build_refuses_a_base_without_a_digest():
    first = STAGES[0].split("\nRUN ")[1].split("\n")[0]  # before anything is installed
    wrong, right = "python@sha256:" + "a" * 63, "python:3.11-slim@sha256:" + "0a" * 32
    for base in ("python:3.11-slim", "", wrong, right):
        done = subprocess.run(["sh", "-c", first], env={"BASE": base}, capture_output=True)
        assert (done.returncode == 0) == (base == right), done
        assert base == right or b"is not pinned by a digest" in done.stderr
