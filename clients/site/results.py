"""Keep the bytes of a run's result at a site, without reading any number of it.

Its numbers are read at a person's command (`fedcal apply`).
"""

import re
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

from fedcal.core import checks
from fedcal.privacy.agreement import Terms
from fedcal.storage import atomic, npz

RESULTS = "results"

MOST_BYTES = 1 << 20
"""Limit of a result's file, beside what the job's method has before its first round: a network's
weights are as many then as at the end."""

UNPACKED = 8
"""Times so many bytes may its numbers take."""

_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def keep_result(folder: Path, run: str, form: str, files: Mapping[str, Any], terms: Terms) -> Path:
    """Keep a run's result in a folder of the site's `results`; its bytes, and where they lie.

    A run has one result: the same bytes may come again, others are refused. It has at most
    `MOST_BYTES` more than `terms.result_bytes`, and unpacked `UNPACKED` times as many, which its
    zip directory and headers tell; no number of it is read.

    Parameters
    ----------
    folder
        of the site
    run
        names the run, and its folder
    form
        what the result is, as the server says
    files
        name -> bytes; only the artifact's own file is kept
    terms
        that the site has accepted

    Raises
    ------
    InputError
        If something is not as it should be; nothing is kept.
    """
    name = checks.one_of("form of this run's result", form, (terms.form,)) + ".npz"
    content = files.get(name)
    if not _RUN.fullmatch(run):
        raise checks.InputError("the name of the run is not a valid folder name")
    most = MOST_BYTES + terms.result_bytes
    if not isinstance(content, bytes) or len(content) > most:
        raise checks.InputError(f"the result has no file {name} of at most {most >> 10} KiB")
    try:
        npz.check_npz(BytesIO(content), UNPACKED * most)
    except checks.InputError as e:
        raise checks.InputError(f"{name}: {e}") from None
    results = folder / RESULTS
    path = results / run / name
    with checks.system_errors(f"cannot write {results.name}"):
        results.mkdir(exist_ok=True)
        path.parent.mkdir(exist_ok=True)
    if before := list(path.parent.glob("*.npz")):
        if before != [path] or path.read_bytes() != content:
            raise checks.InputError("another result of this run came before")
    else:
        atomic.write_file(path, content)
    return path
