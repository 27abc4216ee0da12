"""Certificates that TLS clients trust, keys that Flower reads, and nothing that is overwritten."""

from __future__ import annotations

import contextlib
import socket
import ssl
import stat
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.cli.supernode.register import try_load_public_key
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from refusals import each_is_refused

from fedcal.errors import InputError
from fedcal.experiments.deploy.certificates import CA_LIVES, main, make_certificates

NAMES = ("superlink", "localhost", "calibration.example.org", "127.0.0.1", "::1")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("deployment") / "certificates"
    make_certificates(folder, names=NAMES, sites=("a", "b"), days=30)
    return folder


def handshake(folder: Path, name: str, authority: Path | None = None) -> str:
    """The subject of the server on a loopback socket, as a strict client that asks for `name`."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.crt", folder / "server.key")
    client = ssl.create_default_context(cafile=authority or folder / "ca.crt")
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                server.wrap_socket(connection, server_side=True).close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with (
                socket.create_connection(listener.getsockname(), 5) as plain,
                client.wrap_socket(plain, server_hostname=name) as secure,
            ):
                return str(secure.getpeercert())
        finally:
            thread.join()


def test_the_server_is_trusted_by_its_names_and_authority_and_by_no_other(
    made: Path, tmp_path: Path
) -> None:
    for name in NAMES:
        assert "fedcal SuperLink" in handshake(made, name), name
    make_certificates(tmp_path, names=["localhost"], sites=[])
    for name, authority in (("elsewhere", None), ("localhost", tmp_path / "ca.crt")):
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(made, name, authority)


def test_flower_reads_the_keys_and_of_people_only_the_owner(made: Path) -> None:
    flower_supernode = import_module("flwr.supernode.cli.flower_supernode")
    parser = flower_supernode._parse_args_run_supernode()
    for site in ("a", "b"):
        key = str(made / "sites" / f"{site}.key")
        given = parser.parse_args(["--auth-supernode-private-key", key])
        pair = flower_supernode._try_setup_client_authentication(given)
        assert pair is not None
        assert isinstance(pair[0].curve, ec.SECP384R1)
        public = made / "sites" / f"{site}.pub"
        assert try_load_public_key(public) == public_key_to_bytes(pair[1])
        assert public.read_text().endswith(f" {site}\n")
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in made.rglob("*") if p.is_file()}
    secret = {"ca.key", "server.key", "executor.key", "a.key", "b.key"}
    assert modes.keys() == secret | {"ca.crt", "server.crt", "a.pub", "b.pub"}
    assert {name for name, mode in modes.items() if mode == 0o600} == secret


def test_nothing_is_overwritten_and_nothing_half_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--out", str(tmp_path), "--site", "b"]
    module = "fedcal.experiments.deploy.certificates"
    done = subprocess.run([sys.executable, "-m", module, *words], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    before = (tmp_path / "sites/b.key").read_bytes()
    with pytest.raises(InputError, match=r"sites/b\.key is there already"):
        make_certificates(tmp_path, names=["localhost"], sites=["a", "b"])
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2
    assert "is there already" in capsys.readouterr().err.splitlines()[-1]
    assert sorted(p.name for p in tmp_path.rglob("*.*")) == ["b.key", "b.pub"]
    assert (tmp_path / "sites/b.key").read_bytes() == before


def test_the_server_s_certificate_is_renewed_under_the_same_authority(tmp_path: Path) -> None:
    make_certificates(tmp_path, names=["old.example.org"], sites=["a"], days=10)
    authority = x509.load_pem_x509_certificate((tmp_path / "ca.crt").read_bytes())
    life = authority.not_valid_after_utc - authority.not_valid_before_utc
    assert life.days == 10 * CA_LIVES
    with pytest.raises(InputError, match=r"server\.crt is there already"):
        make_certificates(tmp_path, names=["new.example.org"], sites=[])
    for name in ("server.crt", "server.key"):
        (tmp_path / name).unlink()
    make_certificates(tmp_path, names=["new.example.org"], sites=[])
    assert x509.load_pem_x509_certificate((tmp_path / "ca.crt").read_bytes()) == authority
    assert "new.example.org" in handshake(tmp_path, "new.example.org")
    (tmp_path / "ca.key").write_bytes((tmp_path / "server.key").read_bytes())
    (tmp_path / "server.crt").unlink()
    with pytest.raises(InputError, match=r"ca\.key is not the key of ca\.crt"):
        make_certificates(tmp_path, names=["new.example.org"], sites=[])


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    table = [
        ((["*.example.org"], [], 1), "neither a DNS name nor an IP address"),
        ((["host:9092"], [], 1), "neither a DNS name nor an IP address"),
        (([], ["../a"], 1), "letters, digits"),
        ((["localhost"], [], 0), "days must be a whole number"),
        (([], [], 1), "neither a name of the SuperLink nor a site"),
    ]
    out = tmp_path / "out"
    each_is_refused(table, lambda g: make_certificates(out, names=g[0], sites=g[1], days=g[2]))
    assert not out.exists()
