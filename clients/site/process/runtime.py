"""Process that answers a message at a real site, in place of Flower's `flwr-clientapp`.

python -m fedcal.clients.site.process.runtime --worker     imported once; forks for each message
python -m fedcal.clients.site.process.runtime ARGUMENTS    one message, cold
"""

import argparse
import contextlib
import hashlib
import logging
import os
import signal
import socket
import sys
import tempfile
import traceback
import zipfile
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import flwr
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedcal.clients.site.process import handover, limits, site_app
from fedcal.clients.site.site_log import LOG, LOGGER, log_to
from fedcal.core import checks, naming
from fedcal.core.flower_internals_site import REPLACED, check_flower, replaced, reply_to_bundle
from fedcal.core.flower_internals_site import run_clientapp as flower

SITE = "FEDCAL_SITE"
"""Environment variable with the site's folder."""


def run_message(arguments: Sequence[str], folder: Path) -> int:
    """Pull one message from the SuperNode, answer it by the site's own app, push the reply.

    Parameters
    ----------
    arguments
        as Flower gives them to `flwr-clientapp`
    folder
        of the site

    Returns
    -------
    int
        The exit code.
    """
    check_flower()
    parser = argparse.ArgumentParser("flwr-clientapp")
    parser.add_argument("--runtime-api-address", required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument("--parent-pid", type=int)
    parser.add_argument("--insecure", action="store_true", required=True)
    asked = parser.parse_args(arguments)
    limits.limit_cpu(limits.CPU_SECONDS)
    rows = sum(file.stat().st_size for file in folder.glob("*.npy"))
    limits.limit_memory((limits.MEMORY_MIB << 20) + limits.COPIES * rows)
    try:
        with own_app(site_app.site_app(folder)):
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


def work(folder: Path) -> None:
    """Listen for messages in the working folder, and answer each in a fork of this process.

    Nothing here may start a thread: a fork would be left without it.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(handover.WORKER)
        door.listen(16)
        while True:
            line, _ = door.accept()
            with line:
                if os.fork() == 0:
                    _answer(line, folder)


def _answer(line: socket.socket, folder: Path) -> None:
    """Answer one message and end this process."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        arguments = b"".join(iter(lambda: line.recv(4096), b"")).decode().split("\0")
        code = run_message(arguments, folder)
        line.sendall(str(code).encode())
    except BaseException:  # noqa: BLE001  this process must not go on listening
        traceback.print_exc()
    finally:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main(arguments: Sequence[str]) -> int:
    """Answer one message; with `--worker` as many as come, each in a fork. The exit code."""
    try:
        folder = Path(os.environ[SITE])
        check_flower()
        self_test()
    except KeyError:
        print(f"fedcal: error: {SITE} is not set: fedcal site sets it", file=sys.stderr)
        return checks.InputError.exit_code
    except checks.FedcalError as e:
        print(f"fedcal: error: {naming.printable(str(e))}", file=sys.stderr)
        return e.exit_code
    log_to(folder / LOG)
    if list(arguments) == ["--worker"]:
        work(folder)
    return run_message(arguments, folder)


MEMBERS = ("pyproject.toml", ".info/CONTENT")
"""Files of a bundle that fedcal makes, which are the run config and Flower's list of files."""

MOST_BYTES = 10 * 1024 * 1024
"""Maximum size of a bundle, and of each file in its table of contents; Flower's own limit."""


def check_bundle(content: bytes) -> None:
    """Refuse a bundle that holds anything but the run config.

    Parameters
    ----------
    content
        as it came

    Raises
    ------
    InputError
        If it is too large, is not a zip file, or does not hold just `MEMBERS`.
    """
    names = sorted(info.orig_filename for info in check_size(content))
    if names != sorted(MEMBERS):
        others = [name for name in names if name not in MEMBERS] or names
        raise checks.InputError(
            f"the server's bundle contains {len(names)} files where {' and '.join(MEMBERS)} are "
            f"allowed: {', '.join(map(ascii, others[:3]))[:100]}"
        )


def check_size(content: bytes) -> list[zipfile.ZipInfo]:
    """Return the table of contents of a bundle whose files take no more than they may.

    Raises InputError if it is too large, or is not a zip file.
    """
    checks.integer("the size of a bundle", len(content), 0, MOST_BYTES)
    try:
        with zipfile.ZipFile(BytesIO(content)) as bundle:
            members = bundle.infolist()
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError):
        raise checks.InputError("the server's bundle is not a zip file") from None
    for info in members:
        checks.integer("the size of a file in the server's bundle", info.file_size, 0, MOST_BYTES)
    return members


log = logging.getLogger(LOGGER)


@contextlib.contextmanager
def own_app(app: ClientApp) -> Iterator[None]:
    """Within the block Flower's runtime refuses bundles with code, unpacks none and loads `app`.

    It ends at a message that cannot be read.

    Formal guarantee: of a bundle nothing is written to a disk, imported or run in this process.
    Assumed is that `run_clientapp` touches it by the two replaced functions alone, as it does in
    `KNOWN` versions and as `self_test` sees.
    """

    def refuse_code(content: bytes, *_: object, **__: object) -> None:
        """In place of unpacking it."""
        try:
            check_bundle(content)
        except checks.InputError as e:
            log.warning("refused to answer: %s", e)
            raise site_app.Refused(f"{type(e).__name__}; see the site's own log") from None

    def load_own(*_: object, **__: object) -> object:
        """Whatever the bundle names."""
        return lambda *_: app

    pull = flower.pull_task_input

    def pull_or_end(client: Any) -> Any:
        """End this process at a message that cannot be read.

        Flower replies with an error of its own only then; else it would wait for ours for ever.
        """
        try:
            return pull(client)
        except Exception as e:  # noqa: BLE001  MemoryError, or whatever its bytes lead to
            log.warning("refused to answer: a message cannot be read: %s", type(e).__name__)
            raise SystemExit(1) from None

    own = dict(zip(REPLACED, (refuse_code, load_own, pull_or_end), strict=True))
    with replaced(flower, **own):
        yield


def self_test() -> None:
    """See that no code of a server's runs here: hand Flower's runtime a bundle that has some.

    `run_clientapp` itself is run, with a stand-in for its connection. The bundle names an object in
    a Python file that leaves a mark when it is imported. It must be refused and leave no mark; one
    that only names it must be answered by the site's own app.

    Raises FedcalError if it is not so: then nothing may be answered.
    """
    own = ClientApp()

    @own.query("probe")
    def probe(message: Message, context: Context) -> Message:
        return Message(RecordDict(), reply_to=message)

    with tempfile.TemporaryDirectory() as folder, _aside(folder):
        mark = Path(folder) / "mark"
        code = {"hostile.py": f"open({str(mark)!r}, 'w').close()\nraise SystemExit"}
        with own_app(own):
            refused, answered = reply_to_bundle(_bundle(**code)), reply_to_bundle(_bundle())
        holds = not mark.exists() and os.listdir(folder) == []
    holds = holds and refused is not None and refused.has_error()
    if not (holds and answered is not None and not answered.has_error()):
        raise checks.FedcalError(
            f"flwr {flwr.__version__} would run code that a server sends: no request is answered"
        )


_APP = """\
[project]
name = "probe"
version = "1.0.0"

[tool.flwr.app]
publisher = "test"

[tool.flwr.app.components]
serverapp = "hostile:app"
clientapp = "hostile:app"
"""


def _bundle(**files: str) -> bytes:
    """Return a bundle as `flwr build` packs it, with these files beside the run config."""
    contents = {MEMBERS[0]: _APP, **files}
    lines = [
        f"{name},{hashlib.sha256(text.encode()).hexdigest()},{8 * len(text)}"
        for name, text in contents.items()
    ]
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w") as bundle:
        for name, text in {**contents, MEMBERS[1]: "\n".join(lines)}.items():
            bundle.writestr(name, text)
    return packed.getvalue()


@contextlib.contextmanager
def _aside(folder: str) -> Iterator[None]:
    """Let Flower install a bundle in this folder, and no log tell of what is tried here."""
    home, disabled = os.environ.get("FLWR_HOME"), logging.root.manager.disable
    os.environ["FLWR_HOME"] = folder
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(disabled)
        del os.environ["FLWR_HOME"]
        if home is not None:
            os.environ["FLWR_HOME"] = home


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
