"""What is wrong between a site and a SuperLink, each in one line, before Flower starts."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from refusals import each_is_refused

from fedcal.errors import FedcalError, InputError
from fedcal.experiments.deploy.certificates import make_certificates
from fedcal.experiments.deploy.fleet import (
    Address,
    check_fleet,
    check_public_key,
    public_key,
    read_address,
    trusted,
)
from fedcal.experiments.engines.superlink import complaint


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder / "ours", names=["127.0.0.1"], sites=["a"])
    make_certificates(folder / "named", names=["hub.example"], sites=[])
    return folder


@contextlib.contextmanager
def listening(folder: Path | None, protocols: Sequence[str] = ("h2",)) -> Iterator[Address]:
    """A server of one connection; without a folder it has no TLS."""
    with socket.create_server(("127.0.0.1", 0)) as door:

        def serve() -> None:
            line, _ = door.accept()
            with line, contextlib.suppress(OSError):
                if folder is None:
                    line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    return
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(folder / "server.crt", folder / "server.key")
                context.set_alpn_protocols(list(protocols))
                context.wrap_socket(line, server_side=True).close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield Address(*door.getsockname())
        thread.join()


def test_the_right_one_passes_and_each_of_the_others_is_one_line(made: Path) -> None:
    ours, named = made / "ours", made / "named"

    def refusal(address: Address, root: Path = ours) -> str:
        with pytest.raises(FedcalError) as error:
            check_fleet(address, trusted(root / "ca.crt"), 0)
        assert error.value.exit_code == 1
        assert "\n" not in str(error.value)
        return str(error.value).replace(str(address), "FLEET")

    with listening(ours) as address:
        check_fleet(address, trusted(ours / "ca.crt"), 0)
    with listening(named) as address:
        assert "was not signed by --root-certificates" in refusal(address)
    with listening(named) as address:
        said = refusal(address, named)
        assert said.startswith("the certificate of FLEET does not name 127.0.0.1: use a name")
    with listening(ours, ["http/1.1"]) as address:
        assert "is no Fleet API, which speaks HTTP/2" in refusal(address)
    with listening(None) as address:
        assert refusal(address).startswith("what listens at FLEET does not speak TLS")
    assert refusal(address) == "nobody listens at FLEET (Connection refused)"


def test_a_superlink_that_is_not_up_yet_is_waited_for(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []
    real = socket.create_connection

    def late(address: Address, timeout: float) -> socket.socket:
        tries.append(address)
        if len(tries) < 3:
            raise ConnectionRefusedError(111, "Connection refused")
        return real(address, timeout)

    monkeypatch.setattr(socket, "create_connection", late)
    monkeypatch.setattr("fedcal.experiments.deploy.fleet._PAUSE_S", 0.01)
    with listening(made / "ours") as address:
        check_fleet(address, trusted(made / "ours/ca.crt"), 60)
    assert len(tries) == 3


def test_an_address_is_read_and_written_or_refused() -> None:
    for text, address in (
        ("hub.example:9092", Address("hub.example", 9092)),
        ("10.0.0.1:1", Address("10.0.0.1", 1)),
        ("[::1]:9092", Address("::1", 9092)),
    ):
        assert read_address("--fleet", text) == address
        assert str(address) == text
    bad = (
        "",
        "hub",
        ":1",
        "hub:",
        "hub:0",
        "hub:65536",
        "hub:x",
        "https://hub:1",
        "::1:9",
        "a b:1",
    )
    each_is_refused(
        [(text, "--fleet must be HOST:PORT") for text in bad],
        lambda text: read_address("--fleet", text),
    )


def test_files_that_are_not_what_they_should_be_are_refused(made: Path, tmp_path: Path) -> None:
    own = made / "ours/sites/a.key"
    public = own.with_suffix(".pub")
    assert public.read_text().startswith(public_key(own))
    check_public_key(public)
    with pytest.raises(InputError, match=r"register takes a site's \.pub file"):
        check_public_key(own)
    locked, empty, none = (tmp_path / name for name in ("locked", "empty", "none"))
    command = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "secret", "-f", str(locked)]
    with contextlib.suppress(FileNotFoundError):  # where there is no ssh-keygen
        subprocess.run(command, check=True)
    empty.touch()
    for wrong in (made / "ours/ca.key", made / "ours/ca.crt", locked, empty):
        with pytest.raises(InputError, match=r"is no ECDSA key|cannot be read: No such file"):
            public_key(wrong)
    with pytest.raises(InputError, match="cannot be read: No such file"):
        public_key(none)
    with pytest.raises(InputError, match="No such file"):
        trusted(none)
    with pytest.raises(InputError, match="is no PEM file"):
        trusted(public)


def test_what_flower_says_of_an_error_is_found_in_its_json() -> None:
    said = json.dumps({"success": False, "error-message": "Stopping.\n\n[code: 18] It is over."})
    assert complaint(f"INFO : Starting\n{said}\n") == "[code: 18] It is over."
    assert complaint("INFO : Starting\nERROR : no such run\n") == "no such run"
