"""docker-compose.yml: valid, and as closed as our rules say."""

from pathlib import Path
from typing import Any

import compose

FILE = compose.read()
SERVICES: dict[str, dict[str, Any]] = FILE["services"]


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


"""Of the Dockerfile; each begins with its base."""
