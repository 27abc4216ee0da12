"""Limits of the answer to one message: CPU time and memory; its size: `fedcal.run.engines.node`."""

import math
import signal
import time
from pathlib import Path
from types import FrameType

from fedcal.core.checks import FedcalError

GRACE_S = 30
"""CPU seconds that are left to say that it was too much."""


CPU_SECONDS = 600
"""Limit of an answer's CPU time."""

MEMORY_MIB = 4096
"""Limit of an answer's memory, in MiB, beside `COPIES` of the site's rows."""

COPIES = 4


class OverLimit(FedcalError):
    """A message takes more of the machine than the site gives it."""


def limit_cpu(seconds: int) -> None:
    """Raise `OverLimit` in the main thread once this process has used so many CPU seconds more.

    What does not heed it is killed by the kernel `GRACE_S` later. No core file is written, for it
    would hold rows.

    Parameters
    ----------
    seconds
        of all threads together, from now on
    """
    import resource  # not on Windows, where all else of fedcal can be imported

    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    soft = math.ceil(time.process_time()) + seconds
    hard = soft + GRACE_S
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), min(hard, most)

    def over(number: int, frame: FrameType | None) -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (hard, hard))  # the signal comes each second
        raise OverLimit(f"it takes more than {seconds} CPU seconds")

    signal.signal(signal.SIGXCPU, over)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def limit_memory(more: int) -> None:
    """Let every allocation fail once this process has so many bytes more than it has now.

    The limit is on data (RLIMIT_DATA): what a process writes to, threads' stacks included. Rows
    that are mapped for reading and the code of libraries do not count, as they would in an address
    space. NumPy raises MemoryError then, torch RuntimeError; `lacks_memory` knows both.

    Parameters
    ----------
    more
        bytes
    """
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    soft = _data_bytes() + more
    if most != resource.RLIM_INFINITY:
        soft = min(soft, most)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, most))


def lacks_memory(error: BaseException) -> bool:
    """Return whether an error says that memory ran out."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )


def _data_bytes() -> int:
    """Bytes of data that this process has; 0 where the system does not say."""
    try:
        status = Path("/proc/self/status").read_text("ascii", "replace")
    except OSError:
        return 0
    lines = [line.split() for line in status.splitlines() if line.startswith("VmData:")]
    return 1024 * int(lines[0][1]) if lines else 0
