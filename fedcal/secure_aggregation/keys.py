"""Keys, signatures and sealed messages of the secure sum, all of them from `cryptography`.

* A site's identity: Ed25519 (RFC 8032), for years.
* Its key of one job: X25519 (RFC 7748), deleted when the job ends.
* A message from site to site: ChaCha20-Poly1305 (RFC 8439) under a key that HKDF-SHA256 (RFC 5869)
  makes of the secret that both sites' X25519 keys agree on, for these two public keys, one job and
  one direction.

What is signed, hashed or derived begins with its purpose, so that nothing that was made for one
can be taken for another.
"""

from __future__ import annotations

import hashlib
import os
import struct
from pathlib import Path

from cryptography.exceptions import InvalidSignature, InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedcal.core.checks import InputError, damaged, located, system_errors

KEY_BYTES, SIGNATURE_BYTES, DIGEST_BYTES = 32, 64, 32

_NONCE_BYTES = 12
_SEAL = "seal-2"  # the first version of the derivation did not name the public keys
_DOMAIN = b"fedcal/secure-sum/1/"


def domain(purpose: str) -> bytes:
    """Return the prefix of everything that is signed, hashed or derived for a purpose."""
    return _DOMAIN + purpose.encode("ascii") + b"\0"


def digest(purpose: str, *parts: bytes) -> bytes:
    """SHA-256 of parts, each with its length, so that no two lists look alike."""
    hashed = hashlib.sha256(domain(purpose))
    for part in parts:
        hashed.update(len(part).to_bytes(8, "little"))
        hashed.update(part)
    return hashed.digest()


class SigningKey:
    """A site's own key.

    Parameters
    ----------
    secret
        32 bytes
    """

    def __init__(self, secret: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(secret)
        self.public = self._key.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> SigningKey:
        """Make a new key from the operating system's randomness."""
        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    @classmethod
    def from_pem(cls, text: bytes) -> SigningKey:
        """Return the key that `to_pem` wrote; InputError for anything else."""
        what = "this is not an Ed25519 private key in PEM without a passphrase"
        with damaged(what, UnsupportedAlgorithm):
            key = serialization.load_pem_private_key(text, None)
            if not isinstance(key, Ed25519PrivateKey):
                raise TypeError
            return cls(key.private_bytes_raw())

    def to_pem(self) -> bytes:
        """PKCS 8, as other tools read it."""
        pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        return self._key.private_bytes(pem, form, serialization.NoEncryption())

    def sign(self, purpose: str, message: bytes) -> bytes:
        """Return the signature, 64 bytes."""
        return self._key.sign(domain(purpose) + message)


def verified(public: bytes, purpose: str, message: bytes, signature: bytes) -> bool:
    """Return whether the holder of this Ed25519 key signed this message for this purpose."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, domain(purpose) + message)
    except (InvalidSignature, ValueError):
        return False
    return True


def new_exchange_key() -> tuple[bytes, bytes]:
    """Make a secret X25519 key and its public half, 32 bytes each."""
    key = X25519PrivateKey.generate()
    return key.private_bytes_raw(), key.public_key().public_bytes_raw()


def usable_exchange_key(public: bytes) -> bool:
    """Return whether an X25519 public key agrees on a secret that not everybody knows.

    A key of small order agrees on zero with every key (RFC 7748, section 6.1): secret keys are
    multiples of 8. So one fixed secret key shows it, and all sites judge by the same public bytes.
    """
    try:
        fixed = X25519PrivateKey.from_private_bytes(bytes(KEY_BYTES))
        fixed.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        return False
    return True


def shared_key(secret: bytes, public: bytes, job: bytes, sender: int, receiver: int) -> bytes:
    """Return the key of messages from one site to another in a job, 32 bytes.

    Parameters
    ----------
    secret
        of one of the two
    public
        of the other

    Raises
    ------
    InputError
        If the other's key is one of X25519's few that give everybody the same secret.
    """
    with damaged("a site's X25519 key is not a valid key"):
        mine = X25519PrivateKey.from_private_bytes(secret)
        agreed = mine.exchange(X25519PublicKey.from_public_bytes(public))
    both = sorted((mine.public_key().public_bytes_raw(), public))  # equal bytes at both sides
    ends = struct.pack("<II", sender, receiver)
    info = domain(_SEAL) + ends + b"".join(both)
    return HKDF(hashes.SHA256(), KEY_BYTES, salt=job, info=info).derive(agreed)


def seal(key: bytes, message: bytes, about: bytes) -> bytes:
    """Encrypt a message so that only holders of `key` can read or make it; behind its nonce.

    Parameters
    ----------
    about
        what it belongs to, known to both sides and not in it
    """
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, message, about)


def unseal(key: bytes, sealed: bytes, about: bytes) -> bytes:
    """Decrypt a message of `seal`; InputError if it was not sealed with this key and context."""
    with damaged("a sealed message is damaged, or belongs to another context", InvalidTag):
        nonce, text = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        return ChaCha20Poly1305(key).decrypt(nonce, text, about)


def read_key(path: Path) -> SigningKey:
    """Read a site's key from a file that only its owner can read.

    Raises
    ------
    InputError
        If the file cannot be read, others can read it, or it is not a key.
    """
    with system_errors(f"{path} cannot be read"):
        if path.stat().st_mode & 0o077:
            raise InputError(f"{path} can be read by other users: chmod 600 {path}")
        text = path.read_bytes()
    with located(str(path)):
        return SigningKey.from_pem(text)


def make_key(path: Path) -> SigningKey:
    """Write a new key to a new file that only its owner can read; InputError if one exists."""
    key = SigningKey.generate()
    with system_errors(f"{path} cannot be created"):
        # exclusive, and with its mode from the start: nobody reads it in between
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(number, "wb") as file:
            file.write(key.to_pem())
            file.flush()
            os.fsync(number)
    return key
