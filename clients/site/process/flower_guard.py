"""Flower's client runtime without the step that runs what a server sends.

Flower's `flwr-clientapp` unpacks the bundle of a run and imports the object that it names. Here
both steps are replaced: a bundle with code in it is refused, none is unpacked, and the site's own
app answers, whatever the bundle names.

The functions that are replaced are private to Flower. So only versions that were tried are run
(`KNOWN`), and before anything is answered `self_test` hands Flower's runtime a hostile bundle.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import flwr
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedcal.clients.site.process.site_app import Refused
from fedcal.clients.site.site_log import LOGGER
from fedcal.core.errors import FedcalError, InputError
from fedcal.core.flower_internals import REPLACED, replaced, reply_to_bundle
from fedcal.core.flower_internals import run_clientapp as flower

MEMBERS = ("pyproject.toml", ".info/CONTENT")
"""Files of a bundle that fedcal makes, which are the run config and Flower's list of files."""

MOST_BYTES = 10 * 1024 * 1024
"""Of a bundle as it comes, and of each file in it by what the table of contents says; Flower's own
limit."""


def check_bundle(content: bytes) -> None:
    """Refuse a bundle that holds anything but the run config.

    Parameters
    ----------
    content
        as it came

    Raises
    ------
    InputError
        If it is too large, is no zip file, or does not hold just `MEMBERS`.
    """
    names = sorted(info.orig_filename for info in check_size(content))
    if names != sorted(MEMBERS):
        others = [name for name in names if name not in MEMBERS] or names
        raise InputError(
            f"the server's bundle contains {len(names)} files where {' and '.join(MEMBERS)} are "
            f"allowed: {', '.join(map(ascii, others[:3]))[:100]}"
        )


def check_size(content: bytes) -> list[zipfile.ZipInfo]:
    """Return the table of contents of a bundle whose files take no more than they may.

    Raises InputError if it is too large, or is not a zip file.
    """
    if len(content) > MOST_BYTES:
        raise InputError(f"a bundle of {len(content)} bytes came; at most {MOST_BYTES} are taken")
    try:
        with zipfile.ZipFile(BytesIO(content)) as bundle:
            members = bundle.infolist()
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError):
        raise InputError("the server's bundle is not a zip file") from None
    if any(info.file_size > MOST_BYTES for info in members):
        raise InputError(f"a file of the server's bundle is larger than {MOST_BYTES} bytes")
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
        except InputError as e:
            log.warning("refused to answer: %s", e)
            raise Refused(f"{type(e).__name__}; see the site's own log") from None

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

    with tempfile.TemporaryDirectory() as folder, _home(folder), _silent():
        mark = Path(folder) / "mark"
        code = {"hostile.py": f"open({str(mark)!r}, 'w').close()\nraise SystemExit"}
        with own_app(own):
            refused, answered = reply_to_bundle(_bundle(**code)), reply_to_bundle(_bundle())
        holds = not mark.exists() and os.listdir(folder) == []
    holds = holds and refused is not None and refused.has_error()
    if not (holds and answered is not None and not answered.has_error()):
        raise FedcalError(
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
def _home(folder: str) -> Iterator[None]:
    """Set the folder into which Flower would install a bundle."""
    before = os.environ.get("FLWR_HOME")
    os.environ["FLWR_HOME"] = folder
    try:
        yield
    finally:
        if before is None:
            del os.environ["FLWR_HOME"]
        else:
            os.environ["FLWR_HOME"] = before


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """No log tells of what is tried here."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
