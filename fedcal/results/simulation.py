"""The report of a run, from its folder."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.filesize import decimal

from fedcal.conformal.coverage import FEW_CLASSES
from fedcal.core import checks, pages
from fedcal.core.pages import Part, Table, Text
from fedcal.datasets import is_shipped
from fedcal.evaluation.intervals import from_json
from fedcal.evaluation.page import in_integers
from fedcal.metrics import Reliability, names
from fedcal.metrics.bootstrap import FEWEST
from fedcal.results import labels, page
from fedcal.results.figures import diagrams
from fedcal.results.figures.curves import rounds_sheet
from fedcal.results.files import PAGE
from fedcal.results.headline import headline, measured
from fedcal.results.labels import APP, SIMULATED, STUDY
from fedcal.results.statement import adjacency, meaning

PARTS = ("before", "after")


def result_page(result: dict[str, Any], folder: Path, home: Path) -> page.Page:
    """Return the page of a `result.json`, by `page.json`, or by figures of a calibrator's rows.

    Parameters
    ----------
    folder
        holds the files
    home
        where they will lie; paths in the page are relative to it
    """
    if "verdict" in result:  # of a recalibration at home
        return _home_page(result, folder)
    if (folder / PAGE).is_file():
        return run_page(result, read_parts(folder / PAGE), home)
    with page.reading(folder, "reliability.json"):
        records = page.read_json(folder / "reliability.json")
        reliability = {k: Reliability.from_json(records[k]) for k in PARTS}
    with page.reading(folder, "rounds.jsonl"):
        rounds = page.read_json_lines(folder / "rounds.jsonl")
        sections = calibrator_sections(result, reliability, rounds)
    return run_page(result, sections, home, tested=True)


def run_page(
    result: dict[str, Any],
    parts: Sequence[page.Section | page.Shown],
    home: Path,
    tool: str = "fedcal simulate",
    *,
    tested: bool = False,
) -> page.Page:
    """Return the page of any run: its own parts, then privacy, cost, and how `tool` runs it again.

    Parameters
    ----------
    tested
        the parts are a calibrator's, of test rows
    """
    privacy, config, took_part = result["privacy"], result["config"], ""
    if result.get("sites"):
        took_part = labels.in_short(result["sites"], labels.of_clients(config["engine"]))
    facts = page.words(
        "run",
        **{"result": result, "privacy": privacy, "took_part": took_part, "tested": tested},
        **{"meaning": meaning, "adjacency": adjacency, "bytes": _bytes, "entry": labels.entry},
        **{"estimate": _estimate, "app": APP, "common": COMMON, "few_classes": FEW_CLASSES},
    )
    guarantee: list[page.Shown] = [
        Text("", tuple(privacy["statement"])),
        Table("", (), _split(facts["privacy"])),
        Table("Who sees what", (), [(one["who"], one["what"]) for one in privacy["sees"]]),
        more(privacy["more"]),
    ]
    again = run_again(config["data"], tool=tool, config=config)
    return page.Page(
        f"{result['method']} on {_data_of(config)}",
        headline(result),
        [
            *parts,
            page.Section("Privacy", guarantee),
            page.Section("Communication and time", [Table("", (), _split(facts["costs"]))]),
            page.Section("Run it again", [*again, _settings(config, home)]),
        ],
        tiles=_split(facts["tiles"][:3] + facts["spent"]),
        warnings=result.get("coverage_warnings", ()),
        versions=result["versions"],
        about=title_of(result),
    )


def calibrator_sections(
    result: dict[str, Any], of: Mapping[str, Reliability], rounds: Sequence[dict[str, Any]]
) -> list[page.Section]:
    """Return what test rows show of a calibrator: metrics, reliability, classes, clients, rounds.

    Parameters
    ----------
    of
        "before" and "after"
    rounds
        lines of `rounds.jsonl`
    """
    before, after = (of[k] for k in PARTS)
    title, classes_named = title_of(result), result.get("class_names")
    classes = diagrams.classes_sheet(before, after, f"{title}: class by class", classes_named)
    by_round = rounds_sheet(result["before"], rounds, f"{title}: by round", *names.about(result))
    texts = page.words(
        "simulation",
        rows=before.rows,
        result=result,
        enough=FEWEST,
        classes=before.classes,
        shown=len(classes.panels),
        named=bool(classes_named),
        fewest=diagrams.FEWEST,
    )
    text = {name: Text("", lines, "plain") for name, lines in texts.items()}
    overall = meanings(names.TEST_ROWS, *names.about(result))
    reliability = diagrams.reliability_sheet(of, f"{title}: test rows")
    sections = [
        page.Section(
            "Metrics", [text["exact"], labels.metric_table(result), text["fine"], overall]
        ),
        page.Section("Reliability of the top label", [text["bars"], reliability]),
        page.Section("Class by class", [text["classes"], classes]),
    ]
    if by_round is not None:
        sections.append(page.Section("Round by round", [text["rounds"], by_round]))
    return sections


def meanings(metrics: Iterable[str], *about: str) -> Text:
    """Return what metrics mean, by their headings, for who asks; `about` as `names.named`."""
    each = {names.heading(m, *about): names.named(m, *about).meaning for m in metrics}
    lines = tuple(f"{heading}: {text}" for heading, text in each.items() if text)
    return Text("What the metrics mean", lines, "fold")


COMMON = ("schema", "method", "config", "privacy", "communication", "seconds", "versions")
"""Keys of `result.json` of every run; the others are what its artifact says of itself."""


def read_parts(path: Path) -> list[Part]:
    """Read the parts of a page that a run wrote; errors.InputError for anything else."""
    with page.reading(path.parent, path.name):
        content = page.read_json(path, "page")
        try:
            return pages.from_json(content.get("parts"))
        except checks.InputError as e:
            raise checks.InputError(f"{path}: {e}") from None


def title_of(result: Mapping[str, Any]) -> str:
    """Return what titles of a run's figures begin with: method, data and budget."""
    epsilon = result["privacy"]["epsilon"]
    budget = "" if epsilon is None else f", ε = {float(epsilon):g}"
    return f"{result['method']} on {_data_of(result['config'])}{budget}"


def _data_of(config: Mapping[str, Any]) -> str:
    return Path(str(config["data"])).name or labels.of_clients(config.get("engine"))


def _split(lines: Iterable[str]) -> list[tuple[str, str]]:
    return [(name, fact) for name, _, fact in (line.partition(": ") for line in lines)]


def _estimate(metric: str, estimate: Mapping[str, Any]) -> str:
    """Return a released value with its interval, or what is known of it under noise."""
    if estimate["value"] is None:
        return in_integers(metric, from_json(estimate))
    return measured(metric, estimate)


def more(sentences: Iterable[str]) -> Text:
    """Return what is said beyond a statement, for who asks."""
    return Text("More", tuple(sentences), "fold")


def run_again(*names: str, tool: str, config: Mapping[str, Any]) -> list[Text]:
    """Return how a run is repeated; data sets that were passed in Python no command can load."""
    given = (name for name in dict.fromkeys(names) if name and not is_shipped(name))
    lost = [name for name in given if not Path(name).is_absolute()]
    texts = page.words("again", lost=lost, tool=tool, config=config, app=APP, simulated=SIMULATED)
    return [Text("", lines, "code" if k == "short" else "plain") for k, lines in texts.items()]


def _bytes(count: int) -> str:
    return f"{decimal(count)} ({count:,})" if count >= 10_000 else f"{count:,} bytes"


def _settings(config: Mapping[str, Any], home: Path) -> Table:
    """Return what a run was asked for or took as given, by the names of `config.toml`.

    Parameters
    ----------
    home
        the path of a data file is relative to it where that is shorter
    """
    asked = {**config, **config.get("set", {})}
    if os.path.isabs(data := str(asked["data"])):
        asked["data"] = min(os.path.relpath(data, home.resolve()), data, key=len)
    elsewhere = config.get("engine") in (APP, STUDY)
    left_out = ("set", *(SIMULATED if elsewhere else ()))
    rows = [
        (key, str(value)) for key, value in asked.items() if key not in left_out and value != ""
    ]
    return Table("", (), rows)


def _home_page(content: dict[str, Any], folder: Path) -> page.Page:
    """Return the page of what `site recalibrate` or `check` writes."""
    return page.Page(
        f"{content.get('release', '')}{content['title']}",
        content["verdict"],
        [
            page.Section("Privacy", [Text("", tuple(content["statement"]))]),
            *read_parts(folder / PAGE),
        ],
        versions=content["versions"],
    )


def training_page(training: dict[str, Any], folder: Path, home: Path) -> page.Page:
    """Return the page of a `training.json`."""
    result = {**training, "method": training["config"]["method"], "after": training["test"]}
    return run_page(result, read_parts(folder / PAGE), home, "fedcal train")
