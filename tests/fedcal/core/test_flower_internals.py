"""Which versions of Flower a site runs with, and that what is named of Flower is there."""

import tomllib
from pathlib import Path

import flwr
import pytest
from flwr.supernode.runtime import run_clientapp as flower

from fedcal.core import flower_internals as internals
from fedcal.core.errors import InputError

ROOT = Path(__file__).parents[3]
INSTALL = r"; pip install 'fedcal\[sites\]' \(flwr==1\.39\.0\)$"


def test_the_extra_the_constraints_and_the_pages_name_what_was_tried():
    internals.check_flower(loopback=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (version,) = internals.KNOWN
    assert project["optional-dependencies"]["sites"] == [f"flwr=={version}"]
    assert f"flwr=={version}" in (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    tried = f"({version}; by HTTP {', '.join(internals.KNOWN_BY_HTTP)})"
    assert tried in (ROOT / "docs/guide/deploy.md").read_text("utf-8")


@pytest.mark.filterwarnings("ignore:.*is_flag:DeprecationWarning")  # Flower's own command line
def test_each_name_is_there():
    for name in internals._NAMES:
        assert getattr(internals, name) is not None
    with pytest.raises(AttributeError, match="flower_internals has no attribute Nothing"):
        internals.Nothing  # noqa: B018


def test_a_reply_that_stays_in_pieces_is_given_up(monkeypatch):
    """Flower's own pull, of a part that never comes: it would wait for three minutes."""
    from flwr.supercore.inflatable import inflatable_utils as flower_parts

    monkeypatch.setattr(
        flower_parts.pull_objects, "__kwdefaults__", {**flower_parts.pull_objects.__kwdefaults__}
    )
    internals.limit_pulls(0.2)

    asked = []

    def nothing(part):
        asked.append(part)
        assert len(asked) < 4, "it is still waited for"
        raise flower_parts.ObjectUnavailableError(part)

    with pytest.raises(flower_parts.ObjectPullError, match="timeout"):
        flower_parts.pull_objects(["a part"], nothing)


@pytest.mark.parametrize("version", ["1.38.0", "1.39.1", "1.40.0", "1.43.0", ""])
def test_a_flower_that_was_not_tried_is_refused_whoever_asks(monkeypatch, version):
    monkeypatch.setattr(flwr, "__version__", version)
    monkeypatch.setenv(internals.HTTP_FLEET, "1")
    for loopback in (False, True):
        with pytest.raises(InputError, match=rf"^flwr {version} was not tested: .*{INSTALL}"):
            internals.check_flower(loopback=loopback)


def test_http_is_for_who_asks_for_it(monkeypatch):
    monkeypatch.delenv(internals.HTTP_FLEET, raising=False)
    monkeypatch.setattr(flwr, "__version__", internals.KNOWN_BY_HTTP[-1])
    internals.check_flower(loopback=True)
    for value in ("", "0", "yes"):
        monkeypatch.setenv(internals.HTTP_FLEET, value)
        with pytest.raises(InputError, match=r"no login: pip install 'fedcal\[sites\]'.* proxy "):
            internals.check_flower()
    monkeypatch.setenv(internals.HTTP_FLEET, "1")
    internals.check_flower()


def test_a_flower_of_another_runtime_is_refused(monkeypatch):
    for name in (*internals.REPLACED, "run_clientapp"):
        with monkeypatch.context() as patch:
            patch.delattr(flower, name)
            with pytest.raises(InputError, match=f"has no {name} in flwr.supernode.*{INSTALL}"):
                internals.check_flower(loopback=True)
    monkeypatch.setattr(flower, "run_clientapp", lambda runtime_api_address, token: None)
    with pytest.raises(InputError, match=f"run_clientapp without insecure.*{INSTALL}"):
        internals.check_flower(loopback=True)


def test_of_a_reply_by_http_no_more_is_read_than_was_said(monkeypatch):
    """A large one, one that would unpack to much, and one that leads elsewhere."""
    connection = pytest.importorskip("flwr.supernode.fleet_http_connection")
    import httpx
    from flwr.proto.fab_pb2 import Fab, GetFabRequest, GetFabResponse

    monkeypatch.setattr(connection, "FleetHttpClient", connection.FleetHttpClient)
    internals._bound_http(1000)
    asked, reply = [], httpx.Response(200)

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return reply

    client = connection.FleetHttpClient.from_server_address("site", True, None, ())
    client._client._transport = httpx.MockTransport(answer)
    fits = GetFabResponse(fab=Fab(content=bytes(900))).SerializeToString()
    reply = httpx.Response(200, content=iter([fits]))
    assert client.GetFab(GetFabRequest()).fab.content == bytes(900)
    reply = httpx.Response(200, content=iter([fits, bytes(100)]))
    with pytest.raises(internals._TooLarge) as error:
        client.GetFab(GetFabRequest())
    assert internals.is_too_large(error.value)
    reply = httpx.Response(200, headers={"content-encoding": "gzip"}, content=b"")
    with pytest.raises(internals._TooLarge):
        client.GetFab(GetFabRequest())
    reply = httpx.Response(307, headers={"location": "http://elsewhere/"})
    with pytest.raises(httpx.HTTPStatusError):
        client.GetFab(GetFabRequest())
    assert {request.url.host for request in asked} == {"site"}
    assert {request.headers["accept-encoding"] for request in asked} == {"identity"}
