"""A Ray cluster on the loopback, whose processes end with the test."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from procfs import until

from fedcal.run.engines.processes import ProcessTree
from fedcal.run.engines.superlink import free_port


@contextmanager
def ray_cluster(cores: int) -> Iterator[str]:
    """Yield the address of its head."""
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    port, client_port = free_port(), free_port()
    head = [
        *(Path(sys.executable).parent / "ray", "start", "--head", "--block"),
        *("--node-ip-address=127.0.0.1", f"--port={port}", f"--num-cpus={cores}"),
        *(f"--ray-client-server-port={client_port}", "--include-dashboard=false"),
        f"--temp-dir={folder}",
    ]
    env = os.environ | {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    log = folder / "log"
    with ProcessTree(head, folder=folder, env=env, log=log):
        assert until(lambda: "Ray runtime started" in log.read_text()), log.read_text()
        yield f"127.0.0.1:{port}"
    shutil.rmtree(folder)
