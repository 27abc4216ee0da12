"""What runs for each message at a real site, in place of Flower's `flwr-clientapp`.

`fedcal.experiments.deploy.site_worker` runs this, and hands in what makes the site's own plans.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from fedcal.clients.site.policy import CPU_SECONDS
from fedcal.clients.site.prepared import prepared
from fedcal.clients.site.process.flower_guard import own_app, self_test
from fedcal.clients.site.process.handover import WORKER
from fedcal.clients.site.process.limits import MEMORY_MIB, limit_cpu, limit_memory
from fedcal.clients.site.process.site_app import site_app
from fedcal.clients.site.site_log import LOG, log_to
from fedcal.core.errors import FedcalError, InputError
from fedcal.core.flower_internals import check_flower
from fedcal.core.flower_internals import run_clientapp as flower
from fedcal.core.printable import printable
from fedcal.privacy.agreement import TermsOfJob

SITE = "FEDCAL_SITE"
"""Environment variable with the site's folder."""


def run_message(arguments: Sequence[str], folder: Path, terms_of_job: TermsOfJob) -> int:
    """Pull one message from the SuperNode, answer it by the site's own app, push the reply.

    Parameters
    ----------
    arguments
        as Flower gives them to `flwr-clientapp`
    folder
        of the site
    terms_of_job
        makes the site's own terms of a job

    Returns
    -------
    int
        The exit code.
    """
    check_flower()
    asked = _parser().parse_args(arguments)
    cpu_seconds, memory_bytes = _limits(folder)
    limit_cpu(cpu_seconds)
    limit_memory(memory_bytes)
    try:
        with own_app(site_app(folder, terms_of_job)):
            flower.run_clientapp(
                runtime_api_address=asked.runtime_api_address,
                token=asked.token,
                insecure=True,  # both ends are on the loopback interface of this machine
                parent_pid=asked.parent_pid,
                runtime_dependency_install=False,
            )
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0


def _limits(folder: Path) -> tuple[int, int]:
    """CPU seconds and bytes of memory for a message."""
    try:
        site = prepared(folder)
        return site.cpu_seconds, site.memory_bytes
    except FedcalError:
        return CPU_SECONDS, MEMORY_MIB << 20  # the message is answered with what is wrong


def work(folder: Path, terms_of_job: TermsOfJob) -> None:
    """Listen for messages in the working folder, and answer each in a fork of this process.

    Nothing here may start a thread: a fork would be left without it.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(WORKER)
        door.listen(16)
        while True:
            line, _ = door.accept()
            with line:
                if os.fork() == 0:
                    _answer(line, folder, terms_of_job)


def _answer(line: socket.socket, folder: Path, terms_of_job: TermsOfJob) -> None:
    """Answer one message and end this process."""
    began, code = time.monotonic(), 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        arguments = b"".join(iter(lambda: line.recv(4096), b"")).decode().split("\0")
        code = run_message(arguments, folder, terms_of_job)
        line.sendall(str(code).encode())
        print(f"fedcal: a message took {time.monotonic() - began:.2f} s of this process")
    except BaseException:  # noqa: BLE001  this process must not go on listening
        traceback.print_exc()
    finally:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("flwr-clientapp")
    parser.add_argument("--runtime-api-address", required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument("--parent-pid", type=int)
    parser.add_argument("--insecure", action="store_true", required=True)
    return parser


def main(arguments: Sequence[str], terms_of_job: TermsOfJob) -> int:
    """Answer one message; with `--worker` as many as come, each in a fork. The exit code."""
    try:
        folder = Path(os.environ[SITE])
        check_flower()
        self_test()
    except KeyError:
        print(f"fedcal: error: {SITE} is not set: fedcal site sets it", file=sys.stderr)
        return InputError.exit_code
    except FedcalError as e:
        print(f"fedcal: error: {printable(str(e))}", file=sys.stderr)
        return e.exit_code
    log_to(folder / LOG)
    if list(arguments) == ["--worker"]:
        work(folder, terms_of_job)
    return run_message(arguments, folder, terms_of_job)
