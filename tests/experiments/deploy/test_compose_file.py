"""docker-compose.yml: valid, and as closed as our rules say."""

import subprocess
from pathlib import Path
from typing import Any

import compose
import jsonschema
from check_jsonschema.builtin_schemas import get_builtin_schema

FILE = compose.read()
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
SITES = ("site-a", "site-b", "site-c")


def wrong_of(file: dict[str, Any]) -> list[str]:
    schema = get_builtin_schema("vendor.compose-spec")
    validator = jsonschema.validators.validator_for(schema)(schema)
    return [f"{e.json_path}: {e.message}" for e in validator.iter_errors(file)]


def test_the_file_is_a_compose_file():
    assert wrong_of(FILE) == []
    assert wrong_of({**FILE, "services": {"a": {"image": "x", "read-only": True}}})
    assert SERVICES.keys() == {"server", *SITES}


def test_a_service_can_do_no_more_than_it_must():
    for service in SERVICES.values():
        assert service["init"] is service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["restart"] == "unless-stopped"
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
        assert "healthcheck" in service
        assert "--insecure" not in service["command"]


def test_only_the_fleet_port_is_open_and_where_the_operator_says():
    server = SERVICES["server"]
    assert server["ports"] == ["127.0.0.1:9092:9092"]
    for address in ("0.0.0.0:9092", "10.0.0.5:443"):
        open_ = compose.read({"FEDCAL_PUBLISH": address})["services"]["server"]
        assert open_["ports"] == [f"{address}:9092"]
    assert {n for n, service in SERVICES.items() if "ports" in service} == {"server"}
    # the control port has no login: it listens in the server's container alone
    assert not any(word.startswith("--control") for word in server["command"])
    assert all(service["networks"] == ["fleet"] for service in SERVICES.values())
    assert FILE["networks"] == {"fleet": {"internal": True}}
    # a site on a machine of its own
    alone = compose.read({"FEDCAL_INTERNAL": "false"})
    assert alone["networks"]["fleet"] == {"internal": False}
    assert "depends_on" not in alone["services"]["site-a"]


def test_a_site_has_its_own_kit_keys_and_rows_and_no_other():
    for name in SITES:
        site = name.removeprefix("site-")
        kit, own, rows = SERVICES[name]["volumes"]
        assert (kit["source"], kit["target"]) == (f"./trial/trial-kits/{site}", "/site")
        assert (own["source"], own["target"]) == (f"./trial/own-{site}", "/own")
        assert (rows["target"], rows["read_only"]) == ("/rows", True)
        assert SERVICES[name]["command"][-1] == f"/rows/{site}.csv"
        assert SERVICES[name]["environment"]["FEDCAL_HOME"] == "/own"


BUILD = SERVICES["server"]["build"]
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
