"""Certificates that TLS clients trust; what is wrong between a site and a SuperLink, in a line."""

import contextlib
import json
import socket
import ssl
import stat
import threading
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from flwr.cli.supernode.register import try_load_public_key
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from refusals import refused

from fedcal.core.checks import FedcalError, InputError
from fedcal.run.engines.superlink import complaint
from fedcal.run.engines.tls import (
    CA_LIVES,
    Address,
    check_fleet,
    make_certificates,
    make_site_key,
    public_key,
    trusted,
)

NAMES = ("superlink", "localhost", "calibration.example.org", "127.0.0.1", "::1")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder / "ours", NAMES, 30)
    for site in ("a", "b"):
        make_site_key(folder / "ours/sites", site, site)
    make_certificates(folder / "named", ["hub.example"])
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


def test_the_right_one_passes_and_each_of_the_others_is_one_line(made):
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
        assert "ca.crt vouches for: " in refusal(address)
    with listening(named) as address:
        assert "is not valid for '127.0.0.1'" in refusal(address, named)
    with listening(ours, ["http/1.1"]) as address:
        assert "is not a Fleet API, which speaks HTTP/2" in refusal(address)
    with listening(None) as address:
        assert refusal(address).startswith("what listens at FLEET does not speak TLS")
    assert refusal(address) == "no server listens at FLEET (Connection refused)"


def test_what_flower_says_of_an_error_is_found_in_its_json():
    printed = json.dumps({"success": False, "error-message": "Stopping.\n\n[code: 18] It is over."})
    assert complaint(f"INFO : Starting\n{printed}\n") == "[code: 18] It is over."
    assert complaint("INFO : Starting\nERROR : no such run\n") == "no such run"


def handshake(folder: Path, name: str, authority: Path | None = None) -> str:
    """The subject of the server, as a strict client that asks for `name`."""
    client = ssl.create_default_context(cafile=authority or folder / "ca.crt")
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    with (
        listening(folder) as address,
        socket.create_connection(address, 5) as plain,
        client.wrap_socket(plain, server_hostname=name) as secure,
    ):
        return str(secure.getpeercert())


def test_the_server_s_certificate_is_renewed_under_the_same_authority(tmp_path):
    make_certificates(tmp_path, ["old.example.org"], 10)
    authority = x509.load_pem_x509_certificate((tmp_path / "ca.crt").read_bytes())
    life = authority.not_valid_after_utc - authority.not_valid_before_utc
    assert life.days == 10 * CA_LIVES
    with pytest.raises(InputError, match=r"server\.crt is there: it is not"):
        make_certificates(tmp_path, ["new.example.org"])
    for name in ("server.crt", "server.key"):
        (tmp_path / name).unlink()
    make_certificates(tmp_path, ["new.example.org"])
    assert x509.load_pem_x509_certificate((tmp_path / "ca.crt").read_bytes()) == authority
    assert "new.example.org" in handshake(tmp_path, "new.example.org")
    (tmp_path / "ca.key").write_bytes((tmp_path / "server.key").read_bytes())
    (tmp_path / "server.crt").unlink()
    with pytest.raises(InputError, match=r"ca\.key cannot be read, or do not go together"):
        make_certificates(tmp_path, ["new.example.org"])


def test_flower_reads_the_keys_and_of_people_only_the_owner(made):
    ours = made / "ours"
    flower_supernode = import_module("flwr.supernode.cli.flower_supernode")
    parser = flower_supernode._parse_args_run_supernode()
    for site in ("a", "b"):
        key = str(ours / "sites" / f"{site}.key")
        given = parser.parse_args(["--auth-supernode-private-key", key])
        pair = flower_supernode._try_setup_client_authentication(given)
        assert isinstance(pair[0].curve, ec.SECP384R1)
        public = ours / "sites" / f"{site}.pub"
        assert try_load_public_key(public) == public_key_to_bytes(pair[1])
        assert public.read_text().endswith(f" {site}\n")
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in ours.rglob("*.key")}
    assert modes == dict.fromkeys(["ca.key", "server.key", "executor.key", "a.key", "b.key"], 0o600)


def test_a_key_that_flower_does_not_take_is_refused(tmp_path):
    other = Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()
    )
    (tmp_path / "a.key").write_bytes(other)
    refused(r"a\.key is no public ECDSA key", public_key, tmp_path / "a.key")
