"""How much of a machine one message may use."""

from __future__ import annotations

import math
import signal
import time
from types import FrameType

from fedcal.errors import FedcalError

GRACE_S = 30
"""CPU seconds that are left to say that it was too much."""


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
