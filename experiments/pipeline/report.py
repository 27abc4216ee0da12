"""The report of a pipeline: one page over those of its stages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcal.core.pages import Part, Table
from fedcal.evaluation.pages.page import heading
from fedcal.experiments.pipeline.record import FILE
from fedcal.experiments.report.artifact import sections
from fedcal.experiments.report.headline import headline, measured
from fedcal.experiments.report.labels import percent, set_tiles
from fedcal.experiments.report.page import read_json, reading, write_with_figures
from fedcal.experiments.report.simulation import read_parts
from fedcal.experiments.runs.files import PAGE as CARD

_TESTED = {"accuracy": "accuracy", "ece": "top-label ECE"}


def write_pipeline_report(folder: Path) -> Path:
    """Write `report.html` from `pipeline.json` and what the stages left in their folders.

    Raises
    ------
    InputError
        If a file is missing, or is not what a pipeline of this version writes.
    FedcalError
        If the page cannot be written.
    """
    record: dict[str, Any] = read_json(folder / FILE, "pipeline")
    with reading(folder, FILE):
        card: list[Part] = read_parts(folder / CARD) if (folder / CARD).is_file() else []
        parts: list[Part] = [*budget_tables(record), *card, *_sets(record), *_released(record)]
        context = {
            "title": f"pipeline on {Path(str(record['data'])).name}",
            "verdict": _verdict(record),
            "tiles": _tiles(record),
            "stages": [one["name"] for one in record["stages"] if one["done"]],
            "sections": sections(parts),
            "statement": record["statement"],
            "versions": record["versions"],
        }
        return write_with_figures(folder, "pipeline.html.j2", context, {})


def _verdict(record: Mapping[str, Any]) -> str:
    trained = results_of(record, "train")
    sentences = [headline({"after": trained["test"]})] if trained else []
    others = (results_of(record, kind) for kind in ("recalibrate", "evaluate", "sets"))
    return " ".join([*sentences, *(headline(one) for one in others if one)])


def results_of(record: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return the results of a kind of stage, of the chosen training; {} without any."""
    for one in record["stages"]:
        mine = one["kind"] == kind and (kind != "train" or one["name"] == record["chosen"])
        if mine and one["done"]:
            results: dict[str, Any] = one["results"]
            return results
    return {}


def tested(record: Mapping[str, Any]) -> dict[str, Mapping[str, float]]:
    """Metrics on the test rows of the model, and of what recalibration made of it."""
    metrics: dict[str, Mapping[str, float]] = {}
    if trained := results_of(record, "train"):
        metrics["model"] = trained["test"]
    if calibrated := results_of(record, "recalibrate"):
        metrics.setdefault("model", calibrated["before"])
        metrics["recalibrated"] = calibrated["after"]
    return metrics


def warnings_of(record: Mapping[str, Any]) -> list[str]:
    """Return warnings where prediction sets cover test rows less than they should."""
    return [
        f"Warning: {warning}" for warning in results_of(record, "sets").get("coverage_warnings", ())
    ]


def _tiles(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    looks, tiles = tested(record), []
    for key, name in _TESTED.items():
        if looks:
            tiles.append((name, " → ".join(percent(one[key]) for one in looks.values())))
    if sets := results_of(record, "sets"):
        after = sets["after"]
        tiles.append(("coverage", percent(after["coverage"])))
        tiles.append(("labels in a set", f"{after['set_size']:.3g}"))
    if record["epsilon"] is not None:
        tiles.append(("epsilon, all together", f"{record['epsilon']:.4g} per {record['unit']}"))
    return tiles


def budget_tables(record: Mapping[str, Any]) -> list[Table]:
    """Return tables of each stage's cost and of the total."""
    columns = ("stage", "method", "rows", "epsilon", "delta", "noise")
    rows = tuple(
        (
            one["name"],
            one["method"],
            one["rows"] if one["rows"] == one["part"] else f"{one['rows']} (of {one['part']})",
            "none" if "epsilon" not in one else f"{one['epsilon']:.4g}",
            "none" if "epsilon" not in one else f"{one['delta']:g}",
            _noise(one),
        )
        for one in record["stages"]
    )
    note = "For each stage alone. Stages that read the same rows add up, disjoint rows do not."
    tables = [Table("Stages", columns, rows, note)]
    if record["epsilon"] is None:
        return tables
    by_part = {
        part: ", ".join(one["name"] for one in record["stages"] if one["part"] == part)
        for part in record["by_part"]
    }
    lines = [
        (f"rows: {part}", by_part[part], f"{epsilon:.4g}")
        for part, epsilon in record["by_part"].items()
    ]
    lines.append(("the whole", "all stages", f"{record['epsilon']:.4g}"))
    lines.append(("by basic composition", "all stages", f"{record['basic_epsilon']:.4g}"))
    note = f"At delta = {record['delta']:g}. The ledger is charged with the whole."
    return [
        *tables,
        Table("Epsilon of all stages", ("of", "stages", "epsilon"), tuple(lines), note),
    ]


def _noise(stage: Mapping[str, Any]) -> str:
    if "epsilon" not in stage:
        return "none"
    return f"{stage['mechanism']}, releases: {stage['releases']:,}"


def _sets(record: Mapping[str, Any]) -> list[Part]:
    """Return the promise of the prediction sets, and their performance on test rows."""
    parts: list[Part] = []
    if sets := results_of(record, "sets"):
        sentences = (*warnings_of(record), *sets["sets"]["guarantee"])
        facts = tuple(set_tiles(sets))
        parts.append(Table("Prediction sets", ("test rows", ""), facts, " ".join(sentences)))
    return parts


def _released(record: Mapping[str, Any]) -> list[Part]:
    """Metrics that were released: of [evaluate], and those that a training was chosen by."""
    parts: list[Part] = []
    for one in record["stages"]:
        metrics = one.get("results", {}).get("metrics")
        if not metrics:
            continue
        rows = tuple(
            (heading(name).removesuffix(", %"), text)
            for name, m in metrics.items()
            if (text := measured(name, m))
        )
        title = f"Released by {one['name']}"
        note = "Private releases, with 95 % intervals."
        parts.append(Table(title, ("metric", "value (interval)"), rows, note))
    return parts
