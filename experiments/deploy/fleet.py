"""What can be wrong between a site and a SuperLink, found before Flower is started.

Flower itself waits without an end for a SuperLink that is away, and says little of the others.
"""

import re
import socket
import ssl
import time
from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedcal.core.checks import FedcalError, InputError, damaged, system_errors

_CONNECT_S, _PAUSE_S = 5.0, 1.0
_HOST = re.compile(r"[A-Za-z0-9_.:][A-Za-z0-9_.:%-]*")  # a study's file may be a stranger's
_OTHER_NAME = (62, 64)  # OpenSSL's codes: host name mismatch, IP address mismatch
_EXPIRED, _NOT_YET = 10, 9


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


def public_key(key: Path) -> str:
    """Return the public half of a site's private key, in one line as OpenSSH writes it.

    Raises InputError if the file cannot be read, or holds no key that Flower takes.
    """
    what = f"--key {key} is not an ECDSA key in OpenSSH's format without a passphrase "
    what += "(ssh-keygen -t ecdsa -b 384 -N '' -f site.key)"
    with system_errors(f"cannot read --key {key}"), damaged(what, UnsupportedAlgorithm):
        private = serialization.load_ssh_private_key(key.read_bytes(), None)
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise TypeError
        return _written(private.public_key()).decode("ascii")


def plain_key(where: str, text: bytes) -> bytes:
    """Return the public half of a site's key as OpenSSH writes it, without a comment.

    Raises InputError for another text; `where` it is from.
    """
    what = f"{where} is not a public ECDSA key in OpenSSH's format: give a site's .pub file"
    with damaged(what, UnsupportedAlgorithm):
        known = serialization.load_ssh_public_key(text)
        if not isinstance(known, ec.EllipticCurvePublicKey):
            raise TypeError
        return _written(known)


def _written(key: ec.EllipticCurvePublicKey) -> bytes:
    form = serialization.PublicFormat.OpenSSH
    return key.public_bytes(serialization.Encoding.OpenSSH, form)


def trusted(root_certificates: Path) -> ssl.SSLContext:
    """TLS that trusts these certificates alone; InputError if they cannot be read."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2", "http/1.1"])
    with system_errors(f"cannot read --root-certificates {root_certificates} as a PEM file"):
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
    """Return once a control API listens at `control`, without waiting; see `check_fleet`."""
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
            why = e.strerror or str(e)
        if time.monotonic() >= deadline:
            waited = f"; waited {wait:g} s" if wait else ""
            raise FedcalError(f"no server listens at {at} ({why}{waited})")
        time.sleep(_PAUSE_S)
    try:
        with connection, context.wrap_socket(connection, server_hostname=at.host) as secure:
            return secure.selected_alpn_protocol()
    except ssl.SSLCertVerificationError as e:
        raise FedcalError(_wrong_certificate(at, e)) from None
    except (ssl.SSLError, OSError) as e:
        reason = getattr(e, "reason", None) or e.strerror or type(e).__name__
        raise FedcalError(f"what listens at {at} does not speak TLS ({reason})") from None


def _wrong_certificate(fleet: Address, error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in _OTHER_NAME:
        return (
            f"the certificate of {fleet} does not name {fleet.host}: use a name that it has, or "
            "make it anew with this one (subjectAltName)"
        )
    if error.verify_code in (_EXPIRED, _NOT_YET):
        word = "has expired" if error.verify_code == _EXPIRED else "is not valid yet"
        return f"the certificate of {fleet} {word} by this machine's clock"
    return (
        f"the certificate of {fleet} was not signed by --root-certificates (of a study ca.crt): "
        f"another server listens there, or its ca.crt is another one ({error.verify_message})"
    )
