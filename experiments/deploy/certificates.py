"""Keys and certificates of real sites and their server.

An authority of one's own signs the SuperLink's certificate; each site has a key by which the
SuperLink knows it, and the SuperLink's executor a secret. Nothing but `cryptography` is needed.
"""

import ipaddress
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedcal.core.checks import damaged, like, system_errors, whole
from fedcal.storage.atomic import must_not_exist

CA_LIVES = 10
"""Lifetimes of a server certificate; it can be renewed so often before sites need a new CA."""

_HOST = re.compile(r"(?!.{254})(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*")
_LONGEST = 3650
_AUTHORITY, _SERVER = "fedcal deployment CA", "fedcal SuperLink"
_SLOW_CLOCKS = timedelta(hours=1)


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
    whole("days", days, 1, _LONGEST)
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
    form = serialization.PublicFormat.OpenSSH
    public = key.public_key().public_bytes(Encoding.OpenSSH, form)
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
        return x509.DNSName(like("a name", name, _HOST, "a DNS name or an IP address"))


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
