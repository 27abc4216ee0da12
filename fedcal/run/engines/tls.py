"""Keys, certificates and addresses of real sites and their server, and whether they fit.

An authority of one's own signs the SuperLink's certificate; each site has a key by which the
SuperLink knows it, and the SuperLink's executor a secret. What is wrong between a site and its
SuperLink is found before Flower is started, which waits without an end for one that is away.
"""

import ipaddress
import os
import re
import secrets
import socket
import ssl
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedcal.core.checks import FedcalError, InputError, damaged, integer, like, system_errors
from fedcal.storage.atomic import must_not_exist

CA_LIVES = 10
"""Lifetimes of a server certificate; it can be renewed so often before sites need a new CA."""

_DNS_NAME = re.compile(r"(?!.{254})(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*")
_LONGEST = 3650
_AUTHORITY, _SERVER = "fedcal deployment CA", "fedcal SuperLink"
_SLOW_CLOCKS = timedelta(hours=1)
_CONNECT_S, _PAUSE_S = 5.0, 1.0
_HOST = re.compile(r"[A-Za-z0-9_.:][A-Za-z0-9_.:%-]*")  # a study's file may be a stranger's


def make_certificates(folder: Path, names: Iterable[str], days: int = 365) -> None:
    """Write `ca.crt ca.key server.crt server.key executor.key`.

    A `ca.crt` and `ca.key` that are there already are kept, with `executor.key`, and sign the
    server's certificate.

    Parameters
    ----------
    folder
        made if it is missing; key files are readable by their owner alone
    names
        of the SuperLink, as sites and operators call it: DNS names or IP addresses
    days
        that the server's certificate is valid; the authority's is `CA_LIVES` times that

    Raises
    ------
    InputError
        If a name cannot be one, a file is there already, or nothing can be written there.
    """
    integer("days", days, 1, _LONGEST)
    files: dict[str, bytes] = {}
    if any((folder / name).exists() for name in ("ca.crt", "ca.key")):
        authority, authority_key = _read_authority(folder)
    else:
        authority_key = ec.generate_private_key(ec.SECP256R1())
        extensions: dict[x509.ExtensionType, bool] = {
            x509.BasicConstraints(ca=True, path_length=0): True,
            _key_usage(key_cert_sign=True, crl_sign=True): True,
        }
        public, lives = authority_key.public_key(), CA_LIVES * days
        authority = _certificate(_AUTHORITY, public, lives, None, authority_key, extensions)
        files |= {"ca.crt": authority.public_bytes(Encoding.PEM), "ca.key": _pkcs8(authority_key)}
        files |= {"executor.key": secrets.token_hex(32).encode()}
    key = ec.generate_private_key(ec.SECP256R1())
    extensions = {
        x509.BasicConstraints(ca=False, path_length=None): True,
        _key_usage(digital_signature=True): True,
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]): False,
        x509.SubjectAlternativeName(map(_general_name, names)): False,
    }
    issuer = authority.subject
    certificate = _certificate(_SERVER, key.public_key(), days, issuer, authority_key, extensions)
    files |= {"server.crt": certificate.public_bytes(Encoding.PEM), "server.key": _pkcs8(key)}
    _write(folder, files)


def make_site_key(folder: Path, stem: str, site: str) -> None:
    """Write a site's key pair, `STEM.key` and `STEM.pub`; InputError if one is there.

    It is ECDSA P-384 in OpenSSH's format: Flower refuses others.
    """
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    _write(folder, {f"{stem}.key": private, f"{stem}.pub": public + f" {site}\n".encode()})


def is_certified(certificate: Path, name: str, until: date) -> bool:
    """Return whether a certificate is of a name, among others, and valid until the end of a day."""
    try:
        signed = x509.load_pem_x509_certificate(certificate.read_bytes())
        names = signed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return False
    return _general_name(name) in names and signed.not_valid_after_utc.date() > until


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(like("a name", name, _DNS_NAME, "a DNS name or an IP address"))


def _read_authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    with damaged(f"{folder}: ca.crt and ca.key cannot be read, or do not go together", OSError):
        certificate = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
        key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
        if (
            not isinstance(key, ec.EllipticCurvePrivateKey)
            or key.public_key() != certificate.public_key()
        ):
            raise ValueError
        return certificate, key


def _certificate(
    name: str,
    key: ec.EllipticCurvePublicKey,
    days: int,
    issuer: x509.Name | None,
    issuer_key: ec.EllipticCurvePrivateKey,
    extensions: Mapping[x509.ExtensionType, bool],
) -> x509.Certificate:
    """Return a signed certificate; `extensions` say whether they are critical."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now, number = datetime.now(UTC), x509.random_serial_number()
    issued_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    own = {x509.SubjectKeyIdentifier.from_public_key(key): False, issued_by: False}
    builder = (
        x509.CertificateBuilder(issuer or subject, subject, key, number)
        .not_valid_before(now - _SLOW_CLOCKS)
        .not_valid_after(now + timedelta(days=days))
    )
    for extension, critical in (own | dict(extensions)).items():
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(issuer_key, hashes.SHA256())


def _key_usage(**allowed: bool) -> x509.KeyUsage:
    uses = (
        *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
        *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
    )
    return x509.KeyUsage(**{use: allowed.get(use, False) for use in uses})


def _pkcs8(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    for name in files:
        must_not_exist(folder / name, "it is not overwritten")
    for name, content in files.items():
        path = folder / name
        with system_errors(f"cannot write {path}"):
            path.parent.mkdir(parents=True, exist_ok=True)
            mode = 0o600 if path.suffix == ".key" else 0o644
            # exclusive, and with its mode from the start: nobody reads a key in between
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                file.write(content)


def public_key(key: Path) -> str:
    """Return the public half of a site's private key, in one line as OpenSSH writes it.

    Raises InputError if the file cannot be read, or holds no key that Flower takes.
    """
    with (
        system_errors(f"cannot read {key}"),
        damaged(f"{key} is no ECDSA key in OpenSSH's format", UnsupportedAlgorithm),
    ):
        private = serialization.load_ssh_private_key(key.read_bytes(), None)
        public = private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        return plain_key(str(key), public).decode("ascii")


def plain_key(where: str, text: bytes) -> bytes:
    """Return the public half of a site's key as OpenSSH writes it, without a comment.

    Raises InputError for another text; `where` it is from.
    """
    with damaged(f"{where} is no public ECDSA key in OpenSSH's format", UnsupportedAlgorithm):
        known = serialization.load_ssh_public_key(text)
        if not isinstance(known, ec.EllipticCurvePublicKey):
            raise TypeError
        return known.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)


class Address(NamedTuple):
    """Address at which a SuperLink listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_address(option: str, text: str) -> Address:
    """HOST:PORT, also [IPv6]:PORT; InputError for anything else."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    plain = _HOST.fullmatch(host) and (":" not in host or text.startswith("["))
    if not plain or not (port.isascii() and port.isdecimal()) or not 0 < int(port) < 65536:
        raise InputError(
            f"{option} must be HOST:PORT, such as superlink.example:9092; got {text!r}"
        )
    return Address(host, int(port))


def trusted(root_certificates: Path) -> ssl.SSLContext:
    """TLS that trusts these certificates alone; InputError if they cannot be read."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2", "http/1.1"])
    with system_errors(f"cannot read {root_certificates} as a PEM file"):
        context.load_verify_locations(root_certificates)
    return context


def check_fleet(fleet: Address, context: ssl.SSLContext, wait: float) -> None:
    """Return once a SuperLink that this site trusts listens at `fleet`.

    Parameters
    ----------
    wait
        seconds to wait for one that is not up yet

    Raises
    ------
    FedcalError
        If nobody listens there in time, or not the SuperLink that the certificates are for.
    """
    if _protocol(fleet, context, wait) != "h2":
        raise FedcalError(
            f"what listens at {fleet} is not a Fleet API, which speaks HTTP/2 (is this the "
            "port of the control API, or a proxy that ends TLS?)"
        )


def check_control(control: Address, context: ssl.SSLContext) -> None:
    """Return if a control API listens at `control`, without waiting; see `check_fleet`."""
    if _protocol(control, context, 0.0) == "h2":
        raise FedcalError(f"{control} is not a Control API: is it the Fleet API?")


def _protocol(at: Address, context: ssl.SSLContext, wait: float) -> str | None:
    """Return the protocol inside of TLS at an address, as far as both sides state it."""
    deadline = time.monotonic() + wait
    while True:
        try:
            connection = socket.create_connection(at, _CONNECT_S)
            break
        except OSError as e:
            if time.monotonic() >= deadline:
                raise FedcalError(f"no server listens at {at} ({e.strerror or e})") from None
        time.sleep(_PAUSE_S)
    try:
        with connection, context.wrap_socket(connection, server_hostname=at.host) as secure:
            return secure.selected_alpn_protocol()
    except ssl.SSLCertVerificationError as e:
        why = f"the certificate of {at} is not one that this study's ca.crt vouches for"
        raise FedcalError(f"{why}: {e.verify_message}") from None
    except (ssl.SSLError, OSError) as e:
        reason = getattr(e, "reason", None) or e.strerror or type(e).__name__
        raise FedcalError(f"what listens at {at} does not speak TLS ({reason})") from None
