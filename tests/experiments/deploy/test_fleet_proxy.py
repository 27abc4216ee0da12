"""Sites over HTTP: what the compose file's proxy lets through of a SuperLink, and what not."""

import re
import socket
from importlib import import_module
from types import SimpleNamespace

import compose
import httpx
import pytest
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)
from deployment import Deployment
from machine import Machine

from fedcal.core.flower_internals import fleet_is_http
from fedcal.experiments.deploy.fleet import trusted

CONF = (compose.ROOT / "docker" / "fleet-proxy.conf").read_text()
FLEET = [f"/v1/fleet/{name}" for name in re.findall(r"v1/fleet/\((.*)\)", CONF)[0].split("|")]
TRICKS = (
    *("//v1/control/start-run", "/v1//control/start-run", "/v1/fleet/../control/start-run"),
    *("/v1/fleet/%2e%2e/control/start-run", "/v1/fleet/..%2fcontrol/start-run"),
    *("/v1/control%2fstart-run", "/%76%31/control/start-run", "/V1/CONTROL/START-RUN"),
    *("/v1/fleet/get-run/../../control/start-run", "/v1/fleet/get-run;/../../control/start-run"),
    *("/v1/control/start-run/../../fleet/get-run", "/v1/control/start-run?/v1/fleet/get-run"),
    *("/v1/fleet/get-run?x", "/v1/fleet/get-run%00", "/v1/fleet/get-run%0a", "/v1/fleet/get-run/"),
    *("/v1/fleet/get-run#/../../control/start-run", "/V1/fleet/get-run", "//v1/fleet/get-run"),
    *("https://superlink/v1/control/start-run", "superlink:8000", "/v1/control/start-run HTTP/1.1"),
    *("/v1/fleet/register-node", "/v1/fleet/unregister-node", "/", "*", "/v1/fleet/", "/v1/fleet"),
)
"""Spellings of what must not pass, and of what could pass as something else."""

REFUSED = {400, 403, 405}
"""Of nginx: it cannot read it, it is not let through, no such method."""

pytestmark = pytest.mark.slow


def test_sites_answer_a_run(tmp_path):
    """By HTTP through the proxy, where Flower's sites speak it."""
    with Machine(tmp_path) as machine:
        there = Deployment(machine)
        there.up()
        for name in "abc":
            there.site(name)
        machine.until(lambda: machine.online(there.env) == 3)
        run = there.run("out")
        said = run.communicate(timeout=120)
        assert run.returncode == 0, said
        assert ("fleet-proxy" in machine.trees) == fleet_is_http()
    assert there.charged("out") == (1, 2, 3, 4)
    assert (tmp_path / "out" / "calibrator.npz").is_file()


@pytest.fixture
def ask(tmp_path):
    """(method, path as it is written) -> status, of what a registered site asks the proxy."""
    with Machine(tmp_path) as machine:
        there = Deployment(machine)
        there.up()
        key = load_ssh_private_key((tmp_path / "certificates/sites/a.key").read_bytes(), None)
        context = trusted(tmp_path / "certificates/ca.crt")
        context.set_alpn_protocols(["http/1.1"])

        def status(method: str, path: str, body: bytes = b"") -> int:
            request = httpx.Request(method, "https://superlink/", content=body)
            auth = import_module("flwr.supernode.node_auth_http_interceptor")
            signer = auth.NodeAuthHttpInterceptor(key, key.public_key())
            signer.intercept(SimpleNamespace(request=request), lambda context: None)
            lines = [f"{name}: {value}" for name, value in request.headers.items()]
            kind = ["content-type: application/protobuf", "connection: close", "", ""]
            written = "\r\n".join([f"{method} {path} HTTP/1.1", *lines, *kind]).encode() + body
            line = socket.create_connection(("127.0.0.1", machine.place.fleet), 10)
            with context.wrap_socket(line, server_hostname="127.0.0.1") as secure:
                secure.sendall(written)
                return int(secure.makefile("rb").readline().split()[1])

        yield status


@pytest.mark.skipif(not fleet_is_http(), reason="this Flower's sites have a port of their own")
def test_of_the_superlinks_paths_only_the_fleets_come_through(ask, tmp_path):
    """For whoever has a site's key and network."""
    main, routing = import_module("flwr.superlink.main"), import_module("fastapi.routing")
    found = [context.route for context in routing.iter_route_contexts(main.create_app().routes)]
    routes = {(method, r.path) for r in found for method in getattr(r, "methods", None) or ()}
    closed = {(method, path) for method, path in routes if path not in FLEET}
    assert {"/v1/control/start-run", "/v1/runtime/pull-messages", "/openapi.json"} <= {
        path for _, path in closed
    }
    assert {path for _, path in routes - closed} == set(FLEET)
    for method, path in (*closed, *(("POST", trick) for trick in TRICKS)):
        assert ask(method, path) in REFUSED, (method, path)
    for path in FLEET:
        assert {ask(method, path) for method in ("GET", "PUT", "post", "CONNECT")} <= REFUSED
        assert ask("POST", path) == 401  # the SuperLink's: it is not of this node
    fleet = import_module("flwr.proto.fleet_pb2")
    public = (tmp_path / "certificates/sites/a.pub").read_bytes()
    own = load_ssh_public_key(public).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    asked = fleet.ActivateNodeRequest(public_key=own, heartbeat_interval=30)
    assert ask("POST", "/v1/fleet/activate-node", asked.SerializeToString()) == 200
