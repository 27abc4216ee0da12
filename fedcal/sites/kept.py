"""What a site makes of the results that it has kept, at a person's command and for its own eyes."""

import json
from pathlib import Path
from typing import Any

from fedcal.clients.site.prepared import Prepared, prepared
from fedcal.clients.site.results import RESULTS
from fedcal.core import numerics
from fedcal.core.checks import InputError, one_of
from fedcal.metrics import names
from fedcal.storage.artifact import ARTIFACTS, Artifact, Holdout
from fedcal.storage.atomic import write_whole

METRICS, NAMED = "metrics.json", "named"


def judge(state: Path) -> list[str]:
    """Judge the results that a site has not judged yet on its own rows; a line for each.

    Beside each lie its metrics then, and a copy with the site's names of the classes, of which the
    server knows a digest. Nothing of this is sent.
    """
    site, lines = prepared(state), []
    for path in sorted((state / RESULTS).glob("*/*.npz")):
        run = path.parent.name
        if not (path.parent / METRICS).exists():
            try:
                lines.append(f"run {run}, {_judged(site, run, _named(site, path))}")
            except InputError as e:
                lines.append(f"run {run}: its result cannot be used: {e}")
    return lines


def _named(site: Prepared, path: Path) -> Artifact:
    """Read the result of a file; beside it lies a copy with the site's names of the classes."""
    import fedcal.strategies  # noqa: F401  # the forms of their results

    form = one_of("form of a result", path.stem, ARTIFACTS)
    artifact = ARTIFACTS[form].read(path.parent, form)
    artifact.of_classes(site.names)
    (path.parent / NAMED).mkdir(exist_ok=True)
    artifact.write(path.parent / NAMED, path.stem)
    return artifact


def _judged(site: Prepared, run: str, artifact: Artifact) -> str:
    """Evaluate a kept result on the site's own rows, write that beside it, and return words.

    Metrics of a calibrator are before -> after.
    """
    logits, labels = site.test or (site.shards.logits, site.shards.labels)
    rows = "test" if site.test else "calibration"
    inputs = None if site.test else site.shards.inputs
    test = Holdout(logits, numerics.softmax(logits), labels, inputs=inputs)
    judged = artifact.judge(test) if len(labels) else {}
    content: dict[str, Any] = {"run": run, "rows": rows, "class_names": list(site.names), **judged}
    write_whole(site.folder / RESULTS / run / METRICS, json.dumps(content, indent=2))
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
