"""Work on many rows, block by block, on all cores."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

BLOCK = 2**15
"""Numbers in a block: 256 KiB, so that the passes over one stay in a core's cache."""

MANY = 2**22
"""Numbers from which on threads pay."""


Item = TypeVar("Item")
Result = TypeVar("Result")


def usable_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_threads(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int
) -> Iterator[Result]:
    """Yield what `work` returns for each item, in any order.

    With fewer than two threads this one works, in order. What is not begun when an item fails, or
    the iterator is closed, is left out. numpy lets go of the interpreter's lock.
    """
    if threads < 2:
        yield from map(work, items)
        return
    pool = ThreadPoolExecutor(threads)
    try:
        for future in as_completed([pool.submit(work, item) for item in items]):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def by_rows(work: Callable[[slice], None], rows: int, width: int) -> None:
    """Call `work` on blocks of consecutive rows that cover all of them.

    Large work runs on a thread for each core.

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
    for _ in in_threads(work, blocks, threads if rows * width >= MANY else 1):
        pass
