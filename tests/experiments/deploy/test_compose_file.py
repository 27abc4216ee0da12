"""docker-compose.yml: valid, and as closed as our rules say."""

import re
import subprocess
from pathlib import Path
from typing import Any

import compose
import jsonschema
from check_jsonschema.builtin_schemas import get_builtin_schema

from fedcal.experiments.cli import main as cli

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


def test_every_mount_is_declared_and_every_variable_explained():
    for kind in ("configs", "secrets"):
        used = {
            entry if isinstance(entry, str) else entry["source"]
            for service in SERVICES.values()
            for entry in service.get(kind, ())
        }
        assert used == FILE[kind].keys()
    text = compose.FILE.read_text()
    explained = set(re.findall(r"^#   (FEDCAL_\w+)", text, re.MULTILINE))
    assert explained == set(re.findall(r"\$\{(FEDCAL_\w+):-", text))


BUILD = SERVICES["superlink"]["build"]
IMAGE = compose.ROOT / BUILD["dockerfile"]
STAGES = IMAGE.read_text("utf-8").replace("\\\n", "").split("\nFROM ")[1:]
"""Of the Dockerfile; each begins with its base."""


def test_the_image_is_built_on_a_base_of_a_known_digest_without_keys_or_an_installer():
    args = {"BASE": "", "UID": "1000"}
    assert {"context": ".", "dockerfile": "docker/Dockerfile", "args": args} == BUILD
    based = compose.read({"FEDCAL_BASE": "python@sha256:0"})["services"]["superlink"]["build"]
    assert based["args"]["BASE"] == "python@sha256:0"
    # a digest that nobody could verify here is not in the file: a build without one is refused
    assert re.search(r"^ARG BASE$", IMAGE.read_text("utf-8").split("\nFROM ")[0], re.MULTILINE)
    assert [stage.split()[0] for stage in STAGES] == ["${BASE}"] * 2
    ignored = IMAGE.with_name("Dockerfile.dockerignore").read_text().split()
    assert "*" in ignored
    sent = {line[1:] for line in ignored if line.startswith("!")}
    assert all((compose.ROOT / name).exists() for name in sent)
    assert sent & {"certificates", "data", "tests", ".git", ".env"} == set()
    built, runs = STAGES
    assert built.rstrip().endswith("python -m pip uninstall --yes uv setuptools pip")
    assert "pip install" not in runs
    checks = re.findall(r"find_spec, sys\.argv\[1:\]\)\)\)'\s+([a-z ]+)", runs)
    of_base = "pip setuptools wheel ensurepip"
    assert [check.strip() for check in checks] == [of_base, "pip setuptools uv"]
    assert "! command -v pip && ! command -v uv" in runs


def test_the_build_refuses_a_base_without_a_digest():
    first = STAGES[0].split("\nRUN ")[1].split("\n")[0]  # before anything is installed
    wrong, right = "python@sha256:" + "a" * 63, "python:3.11-slim@sha256:" + "0a" * 32
    for base in ("python:3.11-slim", "", wrong, right):
        done = subprocess.run(["sh", "-c", first], env={"BASE": base}, capture_output=True)
        assert (done.returncode == 0) == (base == right), done
        assert base == right or b"is not pinned by a digest" in done.stderr


def test_sites_that_protect_themselves_have_more_of_the_same():
    """The second file adds keys, federation and policy to each site, and changes nothing else."""
    assert MORE["services"].keys() == {*SITES, "tools"}
    federation = {"source": "federation.toml", "target": "/federation.toml"}
    assert MORE["services"]["tools"] == {"configs": [federation]}
    added = ["--federation=/federation.toml", "--sign-key=/run/secrets/signing.pem"]
    for name in SITES:
        service, site = MORE["services"][name], name.removeprefix("site-")
        assert service.keys() == {"command", "configs", "secrets"}
        assert service["command"] == [*SERVICES[name]["command"], *added, "--policy=/site.toml"]
        own = {"source": f"{site}.toml", "target": "/site.toml"}
        assert service["configs"] == [federation, own]
        assert service["secrets"] == [{"source": f"{site}.pem", "target": "signing.pem"}]
        for _, command, *words in (SERVICES[name]["command"], service["command"]):
            cli.load_command(command).make_context(command, [*words])
    files = {value["file"] for kind in ("configs", "secrets") for value in MORE[kind].values()}
    own_files = {f"./policies/{s}.toml" for s in "abc"}
    own_files |= {f"./certificates/sites/{s}.pem" for s in "abc"}
    assert files == {"./federation.toml", *own_files}
