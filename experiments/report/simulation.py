"""The report of a run, from its folder."""

import json
import math
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedcal.core.errors import InputError
from fedcal.core.pages import Part, Table, from_json
from fedcal.evaluation.by_group import change_table
from fedcal.experiments.report import labels, page, tables
from fedcal.experiments.report.figures import diagrams
from fedcal.experiments.report.figures.curves import rounds_sheet
from fedcal.experiments.report.figures.drawing import Sheet
from fedcal.experiments.report.headline import headline
from fedcal.experiments.report.shown import part_sheet
from fedcal.experiments.runs.config import APP, SIMULATED, parse_setting
from fedcal.experiments.runs.files import PAGE
from fedcal.experiments.runs.statement import adjacency, meaning
from fedcal.metrics import Reliability
from fedcal.storage.atomic import path_of
from fedcal.strategies.server import participation

PARTS = ("before", "after")
MOST_GAPS = 2000  # points in the figure of all classes


def write_report(folder: str | Path, home: Path | None = None) -> Path:
    """Write `report.html` and its figures (PNG, SVG) beside the result files in `folder`.

    Reads `result.json`, and `page.json` or `reliability.json` and `rounds.jsonl`, nothing else.

    Parameters
    ----------
    home
        where the files will lie, if not in `folder`; paths in the report are relative to it

    Returns
    -------
    Path
        the path of the report

    Raises
    ------
    InputError
        A file is missing, or is not what a run of this version writes.
    FedcalError
        The folder cannot be written.
    """
    folder = path_of(folder)
    result = page.read_json(folder / "result.json", "result")
    read = _artifact_page if (folder / PAGE).is_file() else _calibrator_page
    with page.reading(folder, "result.json"):
        template, sheets, context = read(folder, result)
        context |= run_context(result, home or folder)
        return page.write_with_figures(folder, template, context, sheets)


Page = tuple[str, dict[str, Sheet], dict[str, Any]]
"""Template, figures by the names of their files, and what the template shows."""


def _calibrator_page(folder: Path, result: dict[str, Any]) -> Page:
    with page.reading(folder, "reliability.json"):
        records = page.read_json(folder / "reliability.json")
        before, after = (Reliability.from_json(records[k]) for k in ("before", "after"))
    with page.reading(folder, "rounds.jsonl"):
        rounds = page.read_json_lines(folder / "rounds.jsonl")
        names = {metric: heading for metric, (heading, _) in labels.meanings(result).items()}
        by_round = rounds_sheet(result["before"], rounds, title_of(result, "by round"), names)
    both = {"before": before, "after": after}
    sheets = {
        "reliability": diagrams.reliability_sheet(both, title_of(result, "test rows")),
        "classes": diagrams.classes_sheet(
            before, after, title_of(result, "class by class"), result.get("class_names")
        ),
    }
    if by_round is not None:
        sheets["rounds"] = by_round
    drawn = {name: page.figure(sheet, name) for name, sheet in sheets.items()}
    panels = drawn["reliability"]["panels"]
    gaps = None
    if diagrams.SHOWN_CLASSES < before.classes <= MOST_GAPS:
        gaps = page.figure(Sheet("", 1, (diagrams.gap_panel(before, after),)), "gap")
    changed = result.get("clients_change", {})
    by_client = [change_table(changed, "client")] if changed.get("sites") else []
    return (
        "simulation.html.j2",
        sheets,
        {
            "verdict": headline(result),
            "tiles": [*_ece_tiles(result), *run_tiles(result)],
            "metrics": labels.metric_table(result),
            "meanings": list(labels.meanings(result).values()),
            "noise": labels.noise_sentence(result),
            "few": labels.few_rows(result, before.rows),
            "test_rows": before.rows,
            "reliability": drawn["reliability"],
            "pairs": list(zip(panels[:2], panels[2:], strict=True)),
            "classes": drawn["classes"],
            "class_count": before.classes,
            "named": result.get("class_names") is not None,
            "fewest": diagrams.FEWEST,
            "shown_classes": len(sheets["classes"].panels),
            "gaps": gaps,
            "rounds": drawn.get("rounds"),
            "by_client": page.sections(by_client, "client"),
        },
    )


_TILES = {"metrics": labels.metric_tiles, "sets": labels.set_tiles}
"""Key of a result -> its most important numbers."""


def _artifact_page(folder: Path, result: dict[str, Any]) -> Page:
    parts = read_parts(folder / PAGE)
    sheets = sheets_of(parts, result)
    of = next((tiles_of for key, tiles_of in _TILES.items() if key in result), page.numbers_of)
    return (
        "artifact.html.j2",
        sheets,
        {
            "verdict": headline(result),
            "tiles": [*of(result)[:3], *run_tiles(result)],
            "warnings": result.get("coverage_warnings", []),
            "sections": page.sections(parts, sheets=sheets.values()),
        },
    )


def read_parts(path: Path) -> list[Part]:
    """Read the parts of a page that a run wrote; InputError for anything else."""
    with page.reading(path.parent, path.name):
        content = page.read_json(path, "page")
        try:
            return from_json(content.get("parts"))
        except InputError as e:
            raise InputError(f"{path}: {e}") from None


def sheets_of(parts: Sequence[Part], result: dict[str, Any] | None = None) -> dict[str, Sheet]:
    """Return the figures among the parts, by the names of their files, with a run's title."""
    drawn = [part for part in parts if not isinstance(part, Table)]
    return {
        f"curve-{k}": part_sheet(part, title_of(result, part.title) if result else part.title)
        for k, part in enumerate(drawn, 1)
    }


def title_of(result: dict[str, Any], what: str) -> str:
    """Return the title of a figure: method, data, budget, and its content."""
    data = _data_of(result["config"])
    epsilon = result["privacy"]["epsilon"]
    budget = "" if epsilon is None else f", ε = {float(epsilon):g}"
    return f"{result['method']} on {data}{budget}: {what}"


def _data_of(config: dict[str, Any]) -> str:
    return Path(str(config["data"])).name or labels.of_clients(config.get("engine"))


def run_context(
    result: dict[str, Any], home: Path, tool: str = "fedcal simulate"
) -> dict[str, Any]:
    """Return the facts of any run: privacy, cost, and how `tool` runs it again."""
    sees = [(line["who"], line["what"]) for line in result["privacy"].get("sees", ())]
    privacy, config = result["privacy"], result["config"]
    return {
        "title": f"{result['method']} on {_data_of(config)}",
        "privacy": privacy,
        "facts": _pairs(_facts(privacy)),
        "sees": _pairs(sees) if sees else None,
        "communication": _pairs(_communication(result)),
        "tool": tool,
        "command": command(config, home, tool),
        "handed_over": labels.handed_over(config["data"]) if config["data"] else [],
        "real": "control" in config,
        "in_app": config.get("engine") == APP,
        "config": config,
        "versions": result["versions"],
    }


def _pairs(facts: list[tuple[str, str]]) -> tables.TextTable:
    return tables.TextTable((), facts, left=(0, 1))


def _ece_tiles(result: dict[str, Any]) -> list[tuple[str, str]]:
    tiles = []
    for metric in ("ece", "classwise_ece"):
        name = labels.meanings(result)[metric][0].removesuffix(", %")
        before, after = (labels.with_interval(result, part, metric)[0] for part in PARTS)
        tiles.append((name, f"{before} → {after}\u00a0%"))
    return tiles


def run_tiles(result: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the costs of any run, in two numbers."""
    epsilon, unit = result["privacy"]["epsilon"], result["privacy"]["unit"]
    return [
        ("epsilon", "none" if epsilon is None else f"{epsilon:g} per {unit}"),
        ("sent by a client", _bytes(result["communication"]["bytes_up_per_client"])),
    ]


def _facts(privacy: dict[str, Any]) -> list[tuple[str, str]]:
    std = privacy["noise_std"]
    blocks = sorted(set(std)) if isinstance(std, list) else [std]
    noise = "nothing is added to a sum" if std is None else ", ".join(f"{s:.4g}" for s in blocks)
    epsilon, delta = privacy["epsilon"], privacy["delta"]

    newer = []  # records of earlier versions have none of these
    if privacy.get("quorum") is not None:
        newer.append(("quorum of a round", f"{privacy['quorum']:,} answers"))
    if "secure_aggregation" in privacy:
        how = meaning(privacy, "secure_aggregation")
        newer.append(("secure aggregation", how))
    if privacy.get("committee"):
        size, threshold = privacy["committee"]
        newer.append(("committee", f"{threshold} of {size} members open a sum"))
        newer.append(("may work with the server", f"{privacy['colluding']} of the sites"))
    return [
        ("unit", meaning(privacy, "unit")),
        ("adjacency", adjacency(privacy)),
        ("trust model", meaning(privacy, "trust")),
        *newer,
        ("epsilon", "infinite: no differential privacy" if epsilon is None else f"{epsilon:g}"),
        ("delta", "none" if delta is None else f"{delta:g}"),
        ("mechanism", meaning(privacy, "mechanism")),
        ("noise source", meaning(privacy, "noise_source")),
        ("noise std of a released sum", noise),
        ("releases", f"{privacy['releases']}"),
    ]


def _communication(result: dict[str, Any]) -> list[tuple[str, str]]:
    sent, clients = result["communication"], result["config"]["clients"]
    up, down = sent["bytes_up_per_client"], sent["bytes_down_per_client"]
    took = "not kept: it would tell how many were sampled"
    if result["seconds"] is not None:
        took = f"{result['seconds']:.3f} s"
    messages = []
    if "message_bytes_up_per_client" in sent:
        measured = (sent[f"message_bytes_{way}_per_client"] for way in ("up", "down"))
        both = " sent, ".join(map(_bytes, measured))
        messages = [("Flower's messages, measured, a client", f"{both} received")]
    took_part, engine = [], result["config"]["engine"]
    if result.get("sites"):
        part = participation.in_short(result["sites"], labels.of_clients(engine))
        took_part = [("took part", part)]
    where = {"grpc": ", over gRPC", APP: ""}.get(engine, ", all clients on one machine")
    return [
        ("rounds", f"{sent['rounds']}"),
        ("sent by a client, whole run", _bytes(up)),
        ("received by a client, whole run", _bytes(down)),
        *messages,
        ("clients", f"{clients:,}"),
        *took_part,
        ("sent by all clients together", _bytes(up * clients)),
        (f"time of the rounds{where}", took),
    ]


def _bytes(count: int) -> str:
    if count < 10_000:
        return f"{count:,} bytes"
    power = min(int(math.log10(count)) // 3, 4)
    return f"{count / 1000**power:,.1f} {('bytes', 'kB', 'MB', 'GB', 'TB')[power]} ({count:,})"


def command(
    config: Mapping[str, Any], home: Path | None = None, tool: str = "fedcal simulate"
) -> list[str]:
    """Return the command of a resolved configuration in parts, each quoted for a shell.

    Parameters
    ----------
    home
        where it is run, if that is known; the path of a data file is relative to it where that
        is shorter
    tool
        of a run that is no deployment
    """
    if config.get("engine") == APP:
        shown = {k: v for k, v in config.items() if v != "" and k not in SIMULATED}
        return [f"AfterTraining({', '.join(f'{key}={value!r}' for key, value in shown.items())})"]
    real = "control" in config
    parts = ["fedcal deploy run --out again"] if real else [tool]
    for key, value in config.items():
        if real and key in SIMULATED:
            continue
        if key == "set":
            for name, setting in value.items():
                text = setting if _reads_back(name, setting) else json.dumps(setting)
                parts.append(shlex.join(["--set", f"{name}={text}"]))
        elif value != "":  # real sites, and no data here
            text = f"{value:.12g}" if isinstance(value, float) else str(value)
            if home is not None and key == "data" and os.path.isabs(text):
                text = min(os.path.relpath(text, home.resolve()), text, key=len)
            parts.append(shlex.join([f"--{key.replace('_', '-')}", text]))
    return parts


def _reads_back(name: str, setting: Any) -> bool:
    """Return True if `--set` takes a text as it is; others, such as lists in text, need quotes."""
    try:
        return isinstance(setting, str) and parse_setting(f"{name}={setting}") == (name, setting)
    except InputError:
        return False


READING = "reading.json"
_AGAIN = " read again: no run, and no further charge"


def write_reading_report(folder: Path) -> Path:
    """Write `report.html` and its figures beside the numbers and `page.json` in `folder`.

    Raises
    ------
    InputError
        A file is missing, or is not what `evaluate --release` or `site recalibrate` writes.
    FedcalError
        The folder cannot be written.
    """
    name = READING if (folder / READING).is_file() else "result.json"
    content = page.read_json(folder / name, "reading")
    with page.reading(folder, name):
        parts = read_parts(folder / PAGE)
        sheets = sheets_of(parts)
        context = {
            "title": f"{content['release']}{content.get('title', _AGAIN)}",
            "verdict": content["verdict"] if "verdict" in content else headline(content),
            "tiles": [],
            "sections": page.sections(parts, sheets=sheets.values()),
            "statement": content["statement"],
            "versions": content["versions"],
        }
        return page.write_with_figures(folder, "reading.html.j2", context, sheets)


TRAINING = "training.json"

_READ = {"accuracy": "accuracy", "ece": "top-label ECE"}


def write_training_report(folder: Path, home: Path | None = None) -> Path:
    """Write `report.html` and its figures beside `training.json` and `page.json` in `folder`.

    Parameters
    ----------
    home
        where the files will lie, if not in `folder`

    Raises
    ------
    InputError
        A file is missing, or is not what a training writes.
    FedcalError
        The folder cannot be written.
    """
    training: dict[str, Any] = page.read_json(folder / TRAINING, "training")
    with page.reading(folder, TRAINING):
        result = {**training, "method": training["config"]["method"]}
        parts = read_parts(folder / PAGE)
        numbers = [(name, labels.percent(training["test"][key])) for key, name in _READ.items()]
        sheets = sheets_of(parts, result)
        context = {
            "verdict": headline({**result, "after": training["test"]}),
            "tiles": [*numbers, *run_tiles(result)],
            "sections": page.sections(parts, sheets=sheets.values()),
            **run_context(result, home or folder, "fedcal train"),
        }
        return page.write_with_figures(folder, "artifact.html.j2", context, sheets)
