"""Reports are built from a result folder alone, honest, escaped, and self-contained."""

from __future__ import annotations

import html
import json
import re
import shlex
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcal.errors import FedcalError, InputError
from fedcal.experiments import simulate
from fedcal.experiments.cli import _run
from fedcal.experiments.headline import headline
from fedcal.experiments.report import (
    comparison_card,
    result_card,
    write_comparison_report,
    write_report,
)
from fedcal.experiments.report.simulation import command
from fedcal.experiments.report.words import metric_table, noise_sentence
from fedcal.metrics import Reliability

FIGURES = {f"{n}.{s}" for n in ("reliability", "classes", "rounds") for s in ("png", "svg")}


def arrays(classes: int = 4, rows: int = 300) -> dict[str, Any]:
    rng = np.random.default_rng(11)
    labels = rng.integers(0, classes, 2 * rows)
    logits = rng.normal(size=(2 * rows, classes))
    logits[np.arange(2 * rows), labels] += 1.5
    parts = {"logits": 3 * logits[:rows], "labels": labels[:rows]}
    return parts | {"test_logits": 3 * logits[rows:], "test_labels": labels[rows:]}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "out"
    simulate(arrays(), method="fednewton", clients=30, epsilon=1.0, seed=3, out=out)
    return out


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    """A folder with the files that a report reads."""
    for name in ("result.json", "reliability.json", "rounds.jsonl"):
        (tmp_path / name).write_bytes((made / name).read_bytes())
    return tmp_path


def result_of(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "result.json").read_text("utf-8"))
    return content


def metric_entries(result: dict[str, Any]) -> list[Any]:
    return list(metric_table(result).rows)


class Page(HTMLParser):
    """Text, tags and addresses of a page; unclosed tags are an error."""

    VOID = ("meta", "link", "br", "img", "input", "hr")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [
            v or ""
            for k, v in attrs
            if k in ("src", "href", "xlink:href", "srcset", "action", "data", "poster")
        ]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1] == tag, (tag, self.open)
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def page_of(path: Path) -> Page:
    page = Page(path.read_text("utf-8"))
    assert page.open == []
    return page


# --- a run --------------------------------------------------------------------------------------


def test_a_saved_run_has_its_report_and_figures(made: Path) -> None:
    names = {p.name for p in made.iterdir()}
    assert names >= {"report.html", *FIGURES}
    assert (made / "report.html").stat().st_size < 2**20


def test_it_is_self_contained(made: Path) -> None:
    page = page_of(made / "report.html")
    assert set(page.tags) & {"script", "img", "iframe", "object", "embed", "base", "form"} == set()
    assert all(a.startswith(("#", "data:")) for a in page.addresses)
    text = (made / "report.html").read_text("utf-8")
    assert "@import" not in text
    assert set(re.findall(r"url\((.)", text)) == {"#"}
    assert re.findall(r"https?://[^\"]*", text.replace("http://www.w3.org/2000/svg", "")) == []
    assert "default-src 'none'" in html.unescape(text)


def test_every_part_of_the_order_is_there(made: Path) -> None:
    result, text = result_of(made), page_of(made / "report.html").text
    for heading in (
        *("Metrics", "Reliability of the top label", "Class by class", "Round by round"),
        *("Privacy", "Who sees what", "What is not protected", "Where the noise comes from"),
        *("Communication and time", "Run it again"),
    ):
        assert heading in text
    for heading, before, after, change in metric_entries(result):
        assert f"{heading} {before.text} {before.small} {after.text}" in text
        assert change.small in text
    privacy = result["privacy"]
    for sentence in (*privacy["statement"], *privacy["not_protected"], privacy["noise"]):
        assert sentence in text
    for name in ("unit", "adjacency", "trust model", "epsilon", "delta", "noise source"):
        assert name in text
    for line in privacy["sees"]:
        assert f"{line['who']} {line['what']}" in text
    sent = result["communication"]
    assert f"{sent['bytes_up_per_client']:,} bytes" in text
    assert f"{result['seconds']:.3f} s" in text
    for name, version in result["versions"].items():
        assert f"{name} {version}" in text


def test_the_command_gives_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "my rows.npz"
    np.savez(data, **arrays())
    options = {"method": "fedbbq", "epsilon": 2.0, "sampling_rate": 0.5, "clients": 40}
    options["set"] = {"weighting": "changed", "bins_exponent": 5}
    simulate(data, **options, seed=5, out=tmp_path / "a")
    text = page_of(tmp_path / "a" / "report.html").text
    (said,) = re.findall(r"(fedcal simulate --data .*?) Figures for a paper", text)
    program, *arguments = shlex.split(said)
    assert program == "fedcal"
    assert arguments[:3] == ["simulate", "--data", "../my rows.npz"]
    monkeypatch.chdir(tmp_path / "a")
    assert _run([*arguments, "--out", str(tmp_path / "b"), "--quiet"]) == 0
    a, b = (np.load(tmp_path / name / "test_probs.npy") for name in "ab")
    assert a.tobytes() == b.tobytes()
    a, b = (json.loads((tmp_path / name / "result.json").read_text()) for name in "ab")
    assert a["config"] == b["config"]


def test_more_than_twenty_classes_show_the_worst(tmp_path: Path) -> None:
    simulate(arrays(30, 400), method="none", out=tmp_path / "out")
    page = page_of(tmp_path / "out" / "report.html")
    assert "Of 30 classes these are the 20 whose ECE against the rest was worst" in page.text
    assert "0 of 30 classes better" in page.text
    assert "Round by round" not in page.text  # nothing was released
    assert {p.name for p in (tmp_path / "out").iterdir()} & FIGURES == {
        f"{n}.{s}" for n in ("reliability", "classes") for s in ("png", "svg")
    }


def test_results_of_older_runs_have_no_intervals(copy: Path) -> None:
    result = result_of(copy)
    del result["intervals"], result["privacy"]["sees"], result["privacy"]["not_protected"]
    del result["privacy"]["noise"]
    (copy / "result.json").write_text(json.dumps(result), "utf-8")
    lines = [json.loads(line) for line in (copy / "rounds.jsonl").read_text("utf-8").splitlines()]
    plain = [{k: v for k, v in line.items() if k != "test"} for line in lines]
    (copy / "rounds.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in plain), "utf-8")
    text = page_of(write_report(copy)).text
    assert "interval" not in text.partition("Reliability of the top")[0].partition("Metrics On")[2]
    assert "Who sees what" not in text


EVIL = "<script>alert('1')</script>\"'&"


def poison(value: Any) -> Any:
    """The same with every string made hostile."""
    if isinstance(value, dict):
        return {k: poison(v) for k, v in value.items()}
    if isinstance(value, list):
        return [poison(v) for v in value]
    return value + EVIL if isinstance(value, str) else value


def test_words_from_files_are_escaped(copy: Path) -> None:
    (copy / "result.json").write_text(json.dumps(poison(result_of(copy))), "utf-8")
    page = page_of(write_report(copy))
    assert "script" not in page.tags
    assert EVIL in page.text


NOT_RESULTS: dict[str, Callable[[Path], object]] = {
    "result.json is missing": lambda d: (d / "result.json").unlink(),
    "rounds.jsonl is missing": lambda d: (d / "rounds.jsonl").unlink(),
    "no JSON": lambda d: (d / "result.json").write_text("{"),
    "NaN": lambda d: (d / "result.json").write_text('{"schema": NaN}'),
    "another schema": lambda d: (d / "result.json").write_text('{"schema": 2}'),
    "a list": lambda d: (d / "result.json").write_text("[]"),
    "deep": lambda d: (d / "result.json").write_text("[" * 200_000),
    "keys are missing": lambda d: (d / "result.json").write_text('{"schema": 1}'),
    "not UTF-8": lambda d: (d / "reliability.json").write_bytes(b"\xff\xfe"),
    "no reliability": lambda d: (d / "reliability.json").write_text("{}"),
    "no rounds": lambda d: (d / "rounds.jsonl").write_text("3\n"),
}


@pytest.mark.parametrize("what", NOT_RESULTS)
def test_other_files_are_refused_in_one_line(copy: Path, what: str) -> None:
    NOT_RESULTS[what](copy)
    with pytest.raises(InputError) as caught:
        write_report(copy)
    assert "\n" not in str(caught.value)
    assert str(copy) in str(caught.value)
    assert not (copy / "report.html").exists()


def test_a_folder_that_cannot_be_written(copy: Path) -> None:
    (copy / "reliability.png").mkdir()
    with pytest.raises(FedcalError):
        write_report(copy)


# --- words --------------------------------------------------------------------------------------


def test_a_class_that_sets_hide_is_seen_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    options = "--data adult-income --method conformal --unit example --epsilon 1"
    assert not _run(["simulate", *options.split(), "--out", str(out)])
    (warning,) = result_of(out)["coverage_warnings"]
    assert "class 1 71" in warning
    said = capsys.readouterr().out
    assert f"Warning: {warning}" in said
    assert "Class by class" in said
    head = page_of(out / "report.html").text.split("Prediction sets for")[0].replace("\u00a0", " ")
    assert warning in head
    by_class = result_of(out)["coverage_by"]["class"]
    low, high = (f"{100 * by_class[k]['coverage']:.4g}" for k in "10")
    assert f"coverage by class {low} % (class 1) to {high} % (class 0)" in " ".join(head.split())
    right = result_of(out)["coverage_by"]["size"]["1"]["coverage"]
    assert f"{100 * right:.4g} % of them right" in head


def test_the_title_is_the_headline_of_the_result(made: Path) -> None:
    result = result_of(made)
    title = re.search("<h1>(.*)</h1>", (made / "report.html").read_text("utf-8"))
    assert title is not None
    assert html.unescape(title[1]) == headline(result)
    assert "Calibration" in headline(result)
    del result["intervals"]
    assert noise_sentence(result) == ""


@pytest.mark.parametrize(
    ("metric", "ends", "change", "says"),
    [
        ("ece", [-0.02, -0.01], -0.015, "better"),
        ("ece", [0.01, 0.02], 0.015, "worse"),
        ("accuracy", [0.01, 0.02], 0.015, "better"),
        ("nll", [-0.01, 0.02], 0.005, "no clear change"),
        ("nll", [0.0, 0.0], 0.0, "unchanged"),
    ],
)
def test_better_is_said_only_where_the_interval_says_so(
    made: Path, metric: str, ends: list[float], change: float, says: str
) -> None:
    result = result_of(made)
    result["after"][metric] = result["before"][metric] + change
    result["intervals"]["difference"][metric] = ends
    names = ("ece", "classwise_ece", "nll", "brier", "accuracy", "mce")
    assert metric_entries(result)[names.index(metric)][3].mark == says


def test_an_interval_that_excludes_its_number_says_why(made: Path) -> None:
    result = result_of(made)
    result["after"]["ece"] = 0.02
    for ends, why in (([0.001, 0.015], "; noise inflates the number"), ([0.001, 0.02], "")):
        result["intervals"]["after"]["ece"] = ends
        assert metric_entries(result)[0][2].small.endswith(f" to {100 * ends[1]:.1f}{why}")


# --- a comparison -------------------------------------------------------------------------------


def cell(label: str, epsilon: float | None, ece: float, **more: Any) -> dict[str, Any]:
    values = {"ece": ece, "classwise_ece": ece / 3, "nll": 0.2 + ece, "accuracy": 0.9}
    return {
        **{"data": "resnet110-cifar10", "method": label, "label": label, "settings": {}},
        **{"clients": 100, "partition": "iid", "sampling_rate": 1.0, "unit": "user"},
        **{"epsilon": epsilon, "rounds": 4, "seeds": [0, 1], "baseline": False, "failures": []},
        **{"bytes_up": 64, "bytes_down": 380, "seconds": {"mean": 0.25, "std": 0.0}},
        "after": {m: {"mean": v, "std": v / 10} for m, v in values.items()},
        **more,
    }


def compared() -> dict[str, Any]:
    baseline = {"baseline": True, "partition": None, "clients": None, "bytes_up": 0}
    failed = {"after": {}, "seeds": [], "bytes_up": None, "seconds": {"mean": None, "std": None}}
    cells = [
        cell("none", None, 0.0475, **baseline),
        cell("fedtemp", 1.0, 0.0355),
        cell("fednewton", 1.0, 0.0101),
        cell("fedtemp", None, 0.06),
        cell("fednewton", None, 0.0112),
        cell("fedbin", 1.0, 0.0, **failed, failures=[{"seed": 0, "error": "nobody answered"}]),
    ]
    said = ["Publishing all cells adds their budgets up."]
    versions = {"fedcal": "0.1.0"}
    return {"schema": 1, "kind": "comparison", "cells": cells, "statement": said} | {
        **{"versions": versions, "headline": "Smallest is fednewton, at epsilon = 1."}
    }


def test_a_comparison_s_report(tmp_path: Path) -> None:
    (tmp_path / "compare.json").write_text(json.dumps(compared()), "utf-8")
    page = page_of(write_comparison_report(tmp_path))
    assert {p.name for p in tmp_path.iterdir()} == {
        *("compare.json", "report.html"),
        *("epsilon.png", "epsilon.svg", "bytes.png", "bytes.svg"),
    }
    assert compared()["headline"] in page.text
    assert "fedtemp 3.550 ± 0.355 1.183 ± 0.118" in page.text
    assert "Publishing all cells adds their budgets up." in page.text
    assert "fedbin on resnet110-cifar10, iid, ε = 1, seed 0: nobody answered" in page.text
    assert "script" not in page.tags
    text = (tmp_path / "report.html").read_text("utf-8")
    assert len(re.findall(r'class="best"', text)) == 2 * 3  # accuracy is the same for all


def test_a_hostile_comparison_is_escaped(tmp_path: Path) -> None:
    comparison = poison(compared()) | {"kind": "comparison"}
    (tmp_path / "compare.json").write_text(json.dumps(comparison), "utf-8")
    page = page_of(write_comparison_report(tmp_path))
    assert "script" not in page.tags
    assert EVIL in page.text


# --- notebooks ----------------------------------------------------------------------------------


def test_cards(made: Path) -> None:
    result = result_of(made)
    records = json.loads((made / "reliability.json").read_text("utf-8"))
    reliability = {k: Reliability.from_json(v) for k, v in records.items()}
    card = Page(result_card(result, reliability))
    assert card.open == []
    assert result["privacy"]["statement"][0] in card.text
    for heading, before, after, _ in metric_entries(result):
        assert f"{heading} {before.text} {before.small} {after.text}" in card.text
        assert after.small in card.text
    assert card.tags.count("svg") == 2
    assert "var(--" not in result_card(result, reliability)  # there is no style sheet
    hostile = Page(result_card(poison(result), reliability))
    assert "script" not in hostile.tags

    table = Page(comparison_card(compared()))
    assert table.open == []
    assert "fednewton 1.010 ± 0.101" in table.text
    assert "script" not in Page(comparison_card(poison(compared()))).tags


def test_a_run_of_real_sites_is_not_run_again_as_a_simulation(tmp_path: Path) -> None:
    config = {"data": "", "method": "fedoneshot", "partition": "iid", "noise_source": "system"}
    parts = command({**config, "control": "127.0.0.1:8000"}, tmp_path)
    assert parts == [
        "fedcal deploy run --out again",
        "--method fedoneshot",
        "--control 127.0.0.1:8000",
    ]
