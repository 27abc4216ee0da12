"""What a site does with the result of a run: keeps it, and judges it on its own rows."""

import json
import re
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fedcal.clients.site.prepared import Prepared
from fedcal.core import checks, errors, numerics
from fedcal.metrics import names
from fedcal.privacy.agreement import Terms
from fedcal.storage import atomic, npz
from fedcal.storage.artifact import ARTIFACTS, Artifact, Holdout

RESULTS, METRICS = "results", "metrics.json"

MOST_BYTES = 1 << 20
"""Limit of a result's file, beside what the job's method has before its first round: a network's
weights are as many then as at the end."""

UNPACKED = 8
"""Times so many bytes may its numbers take."""

MOST_RESULTS = 1000
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def keep_result(
    site: Prepared, run: str, form: str, files: Mapping[str, Any], terms: Terms
) -> Artifact:
    """Keep a run's result in a folder of the site's `results`; it is read before it counts.

    This copy has the site's names of the classes, of which the server knows a digest.

    A run has one result: the same bytes may come again, others are refused. It has at most
    `MOST_BYTES` more than `terms.result_bytes`, and unpacked `UNPACKED` times as many, which its
    zip directory tells before anything of it is read.

    Parameters
    ----------
    run
        names the run, and its folder
    form
        what the result is, as the server says
    files
        name -> bytes; only the artifact's own file is kept
    terms
        the site's own of the run

    Raises
    ------
    InputError
        If something is not as it should be; nothing is kept.
    """
    artifact_class = ARTIFACTS[checks.one_of("form of this run's result", form, (terms.form,))]
    name = f"{form}.npz"
    content = files.get(name)
    if not _RUN.fullmatch(run):
        raise errors.InputError("the name of the run is not a valid folder name")
    most = MOST_BYTES + terms.result_bytes
    if not isinstance(content, bytes) or len(content) > most:
        raise errors.InputError(f"the result has no file {name} of at most {most >> 10} KiB")
    try:
        npz.read_npz(BytesIO(content), UNPACKED * most)
    except errors.InputError as e:
        raise errors.InputError(f"{name}: {e}") from None
    path = _made(site.folder / RESULTS, run) / name
    with TemporaryDirectory(dir=path.parent.parent, prefix=".") as draft:
        copy = Path(draft) / name
        copy.write_bytes(content)
        artifact = artifact_class.read(copy.parent, form)
        artifact.of_classes(site.names)
        artifact.write(copy.parent, form)
        content = copy.read_bytes()
    if before := list(path.parent.glob("*.npz")):
        if before != [path] or path.read_bytes() != content:
            raise errors.InputError("another result of this run came before")
    else:
        atomic.write_whole(path, content)
    return artifact


def judge_result(site: Prepared, run: str, artifact: Artifact) -> str:
    """Evaluate a kept result on the site's own rows, write that beside it, and return words.

    Metrics of a calibrator are before -> after; the words stay at the site, as the file does.
    """
    logits, labels = site.test or (site.shards.logits, site.shards.labels)
    rows = "test" if site.test else "calibration"
    inputs = site.test_inputs if site.test else site.shards.inputs
    test = Holdout(logits, numerics.softmax(logits), labels, inputs=inputs)
    judged = artifact.judge(test) if len(labels) else {}
    content = {"run": run, "rows": rows, "class_names": list(site.names), **judged}
    atomic.write_whole(site.folder / RESULTS / run / METRICS, json.dumps(content, indent=2))
    before, after = judged.get("before", {}), judged.get("after", {})
    about = names.about(content)
    shown = [
        f"{names.column(m, *about)} "
        + " -> ".join(names.shown(m, of[m]) for of in (before, after) if m in of)
        for m in names.TEST_ROWS
        if m in after
    ]
    kind = "own test rows" if site.test else "the rows it answered with"
    floored = names.floored(judged.get("rows_below_floor", {}))
    return f"on {kind}: {', '.join(shown)}. {floored}".strip(". ") if shown else f"judged on {kind}"


def _made(results: Path, run: str) -> Path:
    folder = results / run
    with errors.system_errors(f"cannot write {results.name}"):
        results.mkdir(exist_ok=True)
        others = {path.name for path in results.iterdir()} - {run}
        checks.whole("the number of results (move old ones away)", len(others), 0, MOST_RESULTS - 1)
        folder.mkdir(exist_ok=True)
    return folder
