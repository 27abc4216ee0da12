"""Work on many rows, block by block, on all cores."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

BLOCK = 2**15
"""Numbers in a block: 256 KiB, so that the passes over one stay in a core's cache."""

MANY = 2**22
"""Numbers from which on threads pay."""


def usable_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def by_rows(work: Callable[[slice], None], rows: int, width: int) -> None:
    """Call `work` on blocks of consecutive rows that cover all of them.

    Large work runs on a thread for each core: numpy lets go of the interpreter's lock.

    Parameters
    ----------
    work
        treats each row by itself and keeps what it finds
    rows, width
        of the arrays it reads
    """
    size = max(1, BLOCK // max(1, width))
    blocks = [slice(k, min(k + size, rows)) for k in range(0, rows, size)]
    threads = min(usable_cores(), len(blocks))
    if rows * width < MANY or threads < 2:
        for block in blocks:
            work(block)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, blocks))
