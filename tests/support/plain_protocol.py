"""The secure sum once more, in plain Python: integers, loops, SHA-2. Nothing of fedcal, no library.

ChaCha20, Poly1305 and their AEAD after RFC 8439, X25519 after RFC 7748, Ed25519 after RFC 8032
(its section 6), HKDF after RFC 5869. Slow, and safe against nobody: for comparing bits.
"""

from __future__ import annotations

import hashlib
import hmac
from itertools import combinations

WORD = 2**64

# --- primitives -------------------------------------------------------------------------------


def little(value: int, size: int) -> bytes:
    return value.to_bytes(size, "little")


def chacha20_block(key: bytes, counter: int, nonce: bytes) -> bytes:
    words = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574]
    words += [int.from_bytes(key[k : k + 4], "little") for k in range(0, 32, 4)]
    words += [counter] + [int.from_bytes(nonce[k : k + 4], "little") for k in range(0, 12, 4)]
    state = list(words)

    def turned(value: int, by: int) -> int:
        return (value << by | value >> (32 - by)) & 0xFFFFFFFF

    def quarter(a: int, b: int, c: int, d: int) -> None:
        for x, y, z, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            state[x] = (state[x] + state[y]) & 0xFFFFFFFF
            state[z] = turned(state[z] ^ state[x], by)

    for _ in range(10):
        for k in range(4):
            quarter(k, k + 4, k + 8, k + 12)
        for k in range(4):
            quarter(k, (k + 1) % 4 + 4, (k + 2) % 4 + 8, (k + 3) % 4 + 12)
    return b"".join(little((a + b) & 0xFFFFFFFF, 4) for a, b in zip(state, words, strict=True))


def chacha20(key: bytes, counter: int, nonce: bytes, text: bytes) -> bytes:
    out = bytearray()
    for at in range(0, len(text), 64):
        block = chacha20_block(key, counter + at // 64, nonce)
        out += bytes(a ^ b for a, b in zip(text[at : at + 64], block, strict=False))
    return bytes(out)


def poly1305(key: bytes, text: bytes) -> bytes:
    r = int.from_bytes(key[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    total = 0
    for at in range(0, len(text), 16):
        total = (total + int.from_bytes(text[at : at + 16] + b"\1", "little")) * r % (2**130 - 5)
    return little((total + int.from_bytes(key[16:], "little")) % 2**128, 16)


def aead(key: bytes, nonce: bytes, text: bytes, about: bytes) -> bytes:
    """The sealed text and its tag."""
    sealed = chacha20(key, 1, nonce, text)
    whole = b"".join(part + bytes(-len(part) % 16) for part in (about, sealed))
    whole += little(len(about), 8) + little(len(sealed), 8)
    return sealed + poly1305(chacha20_block(key, 0, nonce)[:32], whole)


def hkdf(secret: bytes, salt: bytes, info: bytes, size: int) -> bytes:
    key = hmac.digest(salt or bytes(32), secret, "sha256")
    out, last = b"", b""
    while len(out) < size:
        last = hmac.digest(key, last + info + bytes([len(out) // 32 + 1]), "sha256")
        out += last
    return out[:size]


PRIME = 2**255 - 19


def x25519(secret: bytes, point: bytes = little(9, 32)) -> bytes:
    k = int.from_bytes(secret, "little") & ~(7 | 1 << 255) & (2**255 - 1) | 1 << 254
    u = int.from_bytes(point, "little") % 2**255 % PRIME
    x2, z2, x3, z3 = 1, 0, u, 1
    for bit in range(254, -1, -1):
        if k >> bit & 1:
            x2, z2, x3, z3 = x3, z3, x2, z2
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        da, cb, e = d * a, c * b, a * a - b * b
        x3, z3 = (da + cb) ** 2 % PRIME, u * (da - cb) ** 2 % PRIME
        x2, z2 = a * a * b * b % PRIME, e * (a * a + 121665 * e) % PRIME
        if k >> bit & 1:
            x2, z2, x3, z3 = x3, z3, x2, z2
    return little(x2 * pow(z2, PRIME - 2, PRIME) % PRIME, 32)


ORDER = 2**252 + 27742317777372353535851937790883648493
CURVE_D = -121665 * pow(121666, PRIME - 2, PRIME) % PRIME
Point = tuple[int, int, int, int]
"""x = X / Z, y = Y / Z, T = X Y / Z."""


def _base() -> Point:
    x = 15112221349535400772501151409588531511454012693041857206046113283949847762202
    y = 46316835694926478169428394003475163141307993866256225615783033603165251855960
    return x, y, 1, x * y % PRIME


def ed_add(one: Point, two: Point) -> Point:
    a = (one[1] - one[0]) * (two[1] - two[0]) % PRIME
    b = (one[1] + one[0]) * (two[1] + two[0]) % PRIME
    c = 2 * one[3] * two[3] * CURVE_D % PRIME
    d = 2 * one[2] * two[2] % PRIME
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % PRIME, g * h % PRIME, f * g % PRIME, e * h % PRIME


def ed_base(k: int) -> Point:
    total, point = (0, 1, 1, 0), _base()
    while k:
        if k & 1:
            total = ed_add(total, point)
        point, k = ed_add(point, point), k >> 1
    return total


def ed_packed(point: Point) -> bytes:
    inverse = pow(point[2], PRIME - 2, PRIME)
    x, y = point[0] * inverse % PRIME, point[1] * inverse % PRIME
    return little(y | (x & 1) << 255, 32)


def _expanded(secret: bytes) -> tuple[int, bytes]:
    hashed = hashlib.sha512(secret).digest()
    scalar = int.from_bytes(hashed[:32], "little") & ~(7 | 1 << 255) & (2**255 - 1) | 1 << 254
    return scalar, hashed[32:]


def ed25519_public(secret: bytes) -> bytes:
    return ed_packed(ed_base(_expanded(secret)[0]))


def ed25519_sign(secret: bytes, message: bytes) -> bytes:
    scalar, prefix = _expanded(secret)

    def hashed(*parts: bytes) -> int:
        return int.from_bytes(hashlib.sha512(b"".join(parts)).digest(), "little") % ORDER

    r = hashed(prefix, message)
    point = ed_packed(ed_base(r))
    s = (r + hashed(point, ed25519_public(secret), message) * scalar) % ORDER
    return point + little(s, 32)


# --- the protocol -----------------------------------------------------------------------------


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
