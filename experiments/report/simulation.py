"""The report of a run, from its folder."""

import json
import math
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedcal.core import pages
from fedcal.core.errors import InputError
from fedcal.core.pages import Part, Table, Text, from_json
from fedcal.evaluation.by_group import change_table
from fedcal.experiments.report import labels, page
from fedcal.experiments.report.figures import diagrams
from fedcal.experiments.report.figures.curves import rounds_sheet
from fedcal.experiments.report.figures.drawing import Sheet
from fedcal.experiments.report.headline import headline
from fedcal.experiments.report.page import Shown
from fedcal.experiments.runs.config import APP, SIMULATED, parse_setting
from fedcal.experiments.runs.files import PAGE
from fedcal.experiments.runs.statement.sentences import adjacency, meaning
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
    with page.reading(folder, "result.json"):
        if (folder / PAGE).is_file():
            parts: Sequence[page.Section | Shown] = read_parts(folder / PAGE)
            numbers = next((of for key, of in _TILES.items() if key in result), numbers_of)(result)
        else:
            with page.reading(folder, "reliability.json"):
                records = page.read_json(folder / "reliability.json")
                reliability = {k: Reliability.from_json(records[k]) for k in PARTS}
            with page.reading(folder, "rounds.jsonl"):
                rounds = page.read_json_lines(folder / "rounds.jsonl")
                parts = calibrator_sections(result, reliability, rounds)
            numbers = _ece_tiles(result)
        return run_page(result, parts, numbers[:3], home or folder).write(folder)


def run_page(
    result: dict[str, Any],
    parts: Sequence[page.Section | Shown],
    numbers: Sequence[tuple[str, str]],
    home: Path,
    tool: str = "fedcal simulate",
) -> page.Page:
    """Return the page of any run: its own parts, then privacy, cost, and how `tool` runs it again.

    Parameters
    ----------
    numbers
        the most important ones by name
    """
    return page.Page(
        f"{result['method']} on {_data_of(result['config'])}",
        headline(result),
        [*parts, *_run_sections(result, home, tool)],
        tiles=[*numbers, *run_tiles(result)],
        warnings=result.get("coverage_warnings", ()),
        versions=result["versions"],
        about=title_of(result),
    )


def calibrator_sections(
    result: dict[str, Any], of: Mapping[str, Reliability], rounds: Sequence[dict[str, Any]]
) -> list[page.Section]:
    """Return what test rows tell of a calibrator: metrics, reliability, classes, clients, rounds.

    Parameters
    ----------
    of
        "before" and "after"
    rounds
        lines of `rounds.jsonl`
    """
    before, after = (of[k] for k in PARTS)
    about, names = title_of(result), result.get("class_names")
    fine = [labels.few_rows(result, before.rows)]
    if noise := labels.noise_sentence(result):
        fine.append(
            "Below each number: its 95 % interval, from 1,000 bootstrap resamples of the test "
            f"rows. {noise}"
        )
    exact = (
        f"On {before.rows:,} test rows. Test metrics are exact and not private: for the "
        "researcher only."
    )
    metrics: list[Shown] = [
        Text("", (exact,), "plain"),
        labels.metric_table(result),
        Text("", tuple(filter(None, fine)), "plain"),
        meanings(labels.meanings(result).values()),
    ]
    counted = "" if names else " Classes are counted from 0."
    classes = diagrams.classes_sheet(before, after, f"{about}: class by class", names)
    shown = len(classes.panels)
    which = "Each class against the rest: the observed rate, against its predicted probability."
    if shown < before.classes:
        which = (
            f"Of {before.classes:,} classes shown are the {shown} whose ECE against the rest was "
            "worst, before or after, the worst first."
        )
    points = (
        "A point is a bin of probabilities, with its 95 % interval; neighbouring bins are pooled "
        f"until they hold {diagrams.FEWEST} rows."
    )
    each: list[Shown] = [Text("", (which + counted, points), "plain")]
    if diagrams.SHOWN_CLASSES < before.classes <= MOST_GAPS:
        gaps = diagrams.gap_panel(before, after)
        note = "Each point is a class; below the dashed line it got better."
        each.append(Sheet(f"{about}: every class", 1, (gaps,), name="gaps", note=note))
    sections = [
        page.Section("Metrics", metrics),
        page.Section(
            "Reliability of the top label",
            [
                Text("", (_BARS,), "plain"),
                diagrams.reliability_sheet(of, f"{about}: test rows"),
            ],
        ),
        page.Section("Class by class", [*each, classes]),
    ]
    changed = result.get("clients_change", {})
    if changed.get("sites"):
        sections.append(page.Section("Clients", [change_table(changed, "client")]))
    headings = {metric: heading for metric, (heading, _) in labels.meanings(result).items()}
    by_round = rounds_sheet(result["before"], rounds, f"{about}: by round", headings)
    if by_round is not None:
        sections.append(page.Section("Round by round", [Text("", (_ROUNDS,), "plain"), by_round]))
    return sections


_BARS = (
    "If predictions with 80 % confidence are right 80 % of the time, the bars end at the dashed "
    "line. Bars above the blue show overconfidence, crossed-out blue shows underconfidence. Below: "
    "the frequency of each confidence."
)
_ROUNDS = "Test metrics of the calibrator after each release; round 0 is the model without one."


def meanings(pairs: Iterable[tuple[str, str]]) -> Text:
    """Return what the metrics mean, by their headings, for who asks."""
    return Text("What the metrics mean", tuple(f"{name}: {text}" for name, text in pairs), "fold")


_TILES = {"metrics": labels.metric_tiles, "sets": labels.set_tiles}
"""Key of a result -> its most important numbers."""

COMMON = ("schema", "method", "config", "privacy", "communication", "seconds", "versions")
"""Keys of `result.json` of every run; the others are what its artifact says of itself."""


def numbers_of(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the plain numbers of an artifact's result, and those `after` it on test rows."""
    numbers = {**result, **(result.get("after") or {})}
    return [
        (key.replace("_", " "), pages.number(value))
        for key, value in numbers.items()
        if key not in COMMON and isinstance(value, (int, float)) and not isinstance(value, bool)
    ]


def read_parts(path: Path) -> list[Part]:
    """Read the parts of a page that a run wrote; InputError for anything else."""
    with page.reading(path.parent, path.name):
        content = page.read_json(path, "page")
        try:
            return from_json(content.get("parts"))
        except InputError as e:
            raise InputError(f"{path}: {e}") from None


def title_of(result: Mapping[str, Any]) -> str:
    """Return what titles of a run's figures begin with: method, data and budget."""
    epsilon = result["privacy"]["epsilon"]
    budget = "" if epsilon is None else f", ε = {float(epsilon):g}"
    return f"{result['method']} on {_data_of(result['config'])}{budget}"


def _data_of(config: Mapping[str, Any]) -> str:
    return Path(str(config["data"])).name or labels.of_clients(config.get("engine"))


def _run_sections(result: dict[str, Any], home: Path, tool: str) -> list[page.Section]:
    privacy, config = result["privacy"], result["config"]
    told: list[Shown] = [Text("", tuple(privacy["statement"])), Table("", (), _facts(privacy))]
    if privacy.get("sees"):
        sees = [(line["who"], line["what"]) for line in privacy["sees"]]
        told.append(Table("Who sees what", (), sees))
    if "not_protected" in privacy:
        told.append(Text("What is not protected", tuple(privacy["not_protected"])))
    if "noise" in privacy:
        told.append(Text("Where the noise comes from", (privacy["noise"],), "plain"))
    full, anew = command(config, home, tool), "It is another run, with other noise, and its"
    anew += " epsilon comes on top of this one's:"
    again: list[Shown] = [handed_over(config["data"])] if config["data"] else []
    if config.get("engine") == APP:
        where = "with `from fedcal import AfterTraining`, and `add_answers` in its ClientApp."
        again.append(Text("", (f"At the end of the app's ServerApp, {where} {anew}",), "plain"))
    elif "control" in config:
        line = "fedcal deploy run --config config.toml --out again"
        again += [Text("", (f"In this folder. {anew}",), "plain"), Text("", (line,), "code")]
    else:
        same = "In this folder; the configuration beside this file gives the same bits:"
        line = f"{tool} --config config.toml"
        again += [Text("", (same,), "plain"), Text("", (line,), "code")]
    if config.get("engine") != APP:
        again.append(Text("", ("Or in full:",), "plain"))
    return [
        page.Section("Privacy", told),
        page.Section("Communication and time", [Table("", (), _communication(result))]),
        page.Section("Run it again", [*again, Text("", tuple(full), "code")]),
    ]


def handed_over(*names: str) -> Text:
    """Return a sentence on data sets that no command can load: passed as arrays, in Python."""
    lost = labels.handed_over(*names)
    one = len(lost) == 1
    sentence = (
        f"The data {', '.join(lost)} {'was' if one else 'were'} passed in Python, and no command "
        f"finds {'it' if one else 'them'} by name: save to a file first, and give its path as the "
        "data."
    )
    return Text("", (sentence,) if lost else (), "plain")


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


READING, TRAINING = "reading.json", "training.json"
_AGAIN = " read again: no run, and no further charge"
_READ = {"accuracy": "accuracy", "ece": "top-label ECE"}


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
        privacy = page.Section("Privacy", [Text("", tuple(content["statement"]))])
        return page.Page(
            f"{content['release']}{content.get('title', _AGAIN)}",
            content["verdict"] if "verdict" in content else headline(content),
            [privacy, *read_parts(folder / PAGE)],
            versions=content["versions"],
        ).write(folder)


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
        test = training["test"]
        result = {**training, "method": training["config"]["method"], "after": test}
        numbers = [(name, labels.percent(test[key])) for key, name in _READ.items()]
        parts = read_parts(folder / PAGE)
        return run_page(result, parts, numbers, home or folder, "fedcal train").write(folder)
