"""What a server may bundle for its sites: no code at all.

Flower hands the bundle of a run, a zip file, to whatever answers a message. A site has no use for
it: the run config reaches it another way. One that holds more than fedcal's own does is refused by
its table of contents alone, and none is ever unpacked.
"""

from __future__ import annotations

import zipfile
from io import BytesIO

from fedcal.core.errors import InputError

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
