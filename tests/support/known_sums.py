"""Combinations of contributions that a server can compute: exact linear algebra modulo 2**bits.

Each contributor hides its vector by one stream for each piece. To the server a stream is uniform,
but for those it holds the seed of (a unit vector of the piece) and for sums over sets of
contributors that a member opened (the set's indicator). A combination of contributions is known if
its coefficients are in the span of these for *every* piece.
"""

from collections.abc import Sequence

Vector = tuple[int, ...]


def kernel(rows: Sequence[Sequence[int]], columns: int, bits: int = 64) -> list[Vector]:
    """Generators of all v with ``rows @ v == 0`` modulo 2**bits, by Smith's normal form."""
    modulus = 1 << bits
    left = [[entry % modulus for entry in row] for row in rows]
    basis = [[int(i == j) for j in range(columns)] for i in range(columns)]  # basis[j]: a column
    found, done = [], 0
    while done < min(len(left), columns):
        entries = [
            ((left[i][j] & -left[i][j]), i, j)
            for i in range(done, len(left))
            for j in range(done, columns)
            if left[i][j]
        ]
        if not entries:
            break
        power, i, j = min(entries)  # divides all others: columns and rows can be cleared exactly
        left[done], left[i] = left[i], left[done]
        for row in left:
            row[done], row[j] = row[j], row[done]
        basis[done], basis[j] = basis[j], basis[done]
        odd = pow(left[done][done] // power, -1, modulus)
        for other in range(done + 1, columns):
            times = left[done][other] // power * odd % modulus
            if times:
                for row in left:
                    row[other] = (row[other] - times * row[done]) % modulus
                basis[other] = [
                    (a - times * b) % modulus
                    for a, b in zip(basis[other], basis[done], strict=True)
                ]
        for row in left[done + 1 :]:
            row[done] = 0  # by row operations, which leave the kernel alone
        found.append([modulus // power * a % modulus for a in basis[done]])
        done += 1
    return [tuple(v) for v in (*found, *basis[done:]) if any(v)]


def learnable(pieces: Sequence[Sequence[Vector]], size: int, bits: int = 64) -> list[Vector]:
    """Generators of the combinations of `size` contributions that the server can compute.

    Parameters
    ----------
    pieces
        for each piece what is known of its streams, as coefficients of length `size`
    """
    spans = [sorted(span) for span in {frozenset(span) for span in pieces}]
    if not all(spans):
        return []  # one piece of which nothing is known
    units = [tuple(int(i == j) for j in range(size)) for i in range(size)]
    first, *others = spans or [units]
    columns = sum(map(len, spans))
    rows, at = [], len(first)
    for span in others:  # the same combination of contributions by both pieces
        for k in range(size):
            row = [0] * columns
            row[: len(first)] = [v[k] for v in first]
            row[at : at + len(span)] = [-v[k] for v in span]
            rows.append(row)
        at += len(span)
    made = [
        tuple(
            sum(a * v[k] for a, v in zip(known, first, strict=False)) % (1 << bits)
            for k in range(size)
        )
        for known in kernel(rows, columns, bits)
    ]
    return [v for v in made if any(v)]


def is_multiple(vector: Vector, of: frozenset[int]) -> bool:
    """Return whether a combination is a multiple of the sum over these contributors."""
    outside = any(a for k, a in enumerate(vector) if k not in of)
    return not outside and len({vector[k] for k in of}) <= 1
