"""The secure sum once more, in plain Python: integers and loops, nothing of fedcal.

Primitives are the library's: tests/fedcal/secure_aggregation/test_vectors.py has the RFCs' vectors.
"""

import hashlib
from itertools import combinations

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

WORD = 2**64
PRIME = 2**255 - 19


def little(value: int, size: int) -> bytes:
    return value.to_bytes(size, "little")


def chacha20(key: bytes, counter: int, nonce: bytes, text: bytes) -> bytes:
    cipher = Cipher(algorithms.ChaCha20(key, little(counter, 4) + nonce), mode=None)
    return cipher.encryptor().update(text)


def aead(key: bytes, nonce: bytes, text: bytes, about: bytes) -> bytes:
    """The sealed text and its tag."""
    return ChaCha20Poly1305(key).encrypt(nonce, text, about)


def hkdf(secret: bytes, salt: bytes, info: bytes, size: int) -> bytes:
    return HKDF(hashes.SHA256(), size, salt, info).derive(secret)


def x25519(secret: bytes, point: bytes = little(9, 32)) -> bytes:
    public = X25519PublicKey.from_public_bytes(point)
    return X25519PrivateKey.from_private_bytes(secret).exchange(public)


def ed25519_public(secret: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def ed25519_sign(secret: bytes, message: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(secret).sign(message)


def named(purpose: str) -> bytes:
    return b"fedcal/secure-sum/1/" + purpose.encode() + b"\0"


def digest(purpose: str, *parts: bytes) -> bytes:
    whole = named(purpose)
    for part in parts:
        whole += little(len(part), 8) + part
    return hashlib.sha256(whole).digest()


def sign(secret: bytes, purpose: str, message: bytes) -> bytes:
    return ed25519_sign(secret, named(purpose) + message)


def stream(seed: bytes, length: int) -> list[int]:
    text = chacha20(seed, 0, bytes(12), bytes(8 * length))
    return [int.from_bytes(text[k : k + 8], "little") for k in range(0, 8 * length, 8)]


def as_bytes(words: list[int]) -> bytes:
    return b"".join(little(word, 8) for word in words)


def pieces_of(members: list[int], threshold: int) -> list[tuple[int, ...]]:
    return list(combinations(sorted(members), threshold - 1))


def packed(parts: list[bytes]) -> bytes:
    return b"".join(little(len(part), 4) + part for part in parts)


def enrolment(signing: bytes, exchange: bytes, job: bytes, site: int, nonce: bytes) -> bytes:
    text = little(site, 4) + x25519(exchange) + nonce
    return text + sign(signing, "enrol", job + text)


def contribution(
    signing: bytes,
    exchange: bytes,
    job: bytes,
    number: int,
    question: bytes,
    site: int,
    members: dict[int, bytes],
    pieces: list[tuple[int, ...]],
    words: list[int],
    seeds: list[bytes],
    nonces: dict[int, bytes],
) -> bytes:
    """`members`: X25519 keys of those who have enrolled; `nonces`: of what is sealed for them."""
    hidden = list(words)
    for seed in seeds:
        for k, mask in enumerate(stream(seed, len(words))):
            hidden[k] = (hidden[k] - mask) % WORD
    where = little(number, 4) + little(site, 4)
    header = job + little(number, 4) + question + little(site, 4) + x25519(exchange)
    header += little(len(words), 4) + digest("vector", as_bytes(hidden))
    header += little(len(members), 2) + little(len(pieces), 2)
    for member in sorted(members):
        header += little(member, 4)
    for k, seed in enumerate(seeds):
        header += digest("seed", job, where + little(k, 4), seed)
    parts = [header + sign(signing, "contribution", header), as_bytes(hidden)]
    for member in sorted(members):
        told = b"".join(
            seed for seed, without in zip(seeds, pieces, strict=True) if member not in without
        )
        both = sorted((x25519(exchange), members[member]))
        info = named("seal-2") + little(site, 4) + little(member, 4) + both[0] + both[1]
        key = hkdf(x25519(exchange, members[member]), job, info, 32)
        about = digest("sealed", header, little(member, 4))
        sealed = nonces[member] + aead(key, nonces[member], told, about)
        parts.append(little(member, 4) + sealed)
    return packed(parts)


def sum_digest(job: bytes, number: int, contributions: list[bytes]) -> bytes:
    headers = []
    for text in contributions:
        size = int.from_bytes(text[:4], "little")
        headers.append(text[4 : 4 + size - 64])
    return digest("sum", job, little(number, 4), *sorted(headers))


def confirmation(signing: bytes, member: int, of: bytes) -> bytes:
    return little(member, 4) + sign(signing, "confirm", little(member, 4) + of)


def opening(
    signing: bytes,
    member: int,
    of: bytes,
    pieces: list[tuple[int, ...]],
    seeds: list[list[bytes]],
    length: int,
) -> bytes:
    """`seeds`: of each contributor, for each piece."""
    told = b""
    for k, without in enumerate(pieces):
        if member not in without:
            total = [0] * length
            for own in seeds:
                for place, mask in enumerate(stream(own[k], length)):
                    total[place] = (total[place] + mask) % WORD
            told += as_bytes(total)
    return packed([of, told, sign(signing, "open", digest("pieces", of, told))])
