"""One table: which columns it has, what stands in them, and the same numbers everywhere."""

import csv
import io
from typing import Any

from rich.console import Console

from fedcal.experiments.report.tables import terminal
from fedcal.experiments.runs.comparison.summary import spread
from fedcal.experiments.runs.comparison.table import Cells, as_csv, as_table


def over(mean: float, std: float = 0.0) -> dict[str, Any]:
    return {"mean": mean, "std": std, "values": [mean, mean]}


def line(**given: Any) -> dict[str, Any]:
    metrics = {"accuracy": over(0.9356), "ece": over(0.0475), "classwise_ece": over(0.00981)}
    after = {**metrics, "nll": over(0.3583), "brier": over(0.1), "mce": over(0.3)}
    return {
        **{"data": "d", "method": "fedbin", "label": "FedBin", "settings": {}, "baseline": False},
        **{"clients": 100, "partition": "iid", "epsilon": None, "delta": None, "unit": "user"},
        **{"trust": "secagg", "sampling_rate": 1.0, "rounds": 1, "seeds": [0, 1], "failures": []},
        **{"before": after, "after": after, "noise_std": 0.0, "mechanism": "none"},
        **{"bytes_up": 20480, "bytes_down": 221, "seconds": {"mean": 0.0123, "std": 0.001}},
        **given,
    }


BASELINE = {
    **dict.fromkeys(("clients", "partition", "unit", "trust", "sampling_rate", "mechanism")),
    "method": "none",
    "label": "uncalibrated",
    "baseline": True,
    "rounds": 0,
}


def shown(*lines: dict[str, Any]) -> list[dict[str, str]]:
    cells = Cells(lines)
    return [dict(zip(cells.headings, cells.texts(entry), strict=True)) for entry in lines]


def test_a_line_as_people_read_it():
    noisy = line(
        epsilon=1.0,
        delta=1e-5,
        noise_std=[33.4, 167.2, 33.4],
        after={**line()["after"], "ece": over(0.03391, 0.00659), "nll": over(0.1, 4e-5)},
    )
    assert shown(noisy) == [
        {
            "method": "FedBin",
            "epsilon": "1",
            "accuracy %": "93.560",
            "ECE %": "3.391 ± 0.659",
            "cwECE %": "0.981",
            "NLL": "0.1000",  # a spread that is shown as 0 is not shown
            "delta": "1e-05",
            "noise std": "33.4 / 167",
            "bytes up / down": "20,480 / 221",
            "seconds": "0.012",
        }
    ]
    draw = shown(line(epsilon=1.0, delta=0.0, noise_std=None))[0]
    assert (draw["noise std"], draw["delta"]) == ("(draw)", "0")
    free = shown(line())[0]
    assert (free["epsilon"], free["noise std"], free["delta"]) == ("inf", "", "")
    assert shown(line(**BASELINE))[0]["epsilon"] == ""


def test_what_differs_is_a_column_and_what_does_not_is_in_the_title():
    for fact, values, texts in (
        ("data", ("/far/away/a.npz", "b"), ("a.npz", "b")),
        ("clients", (10, 1000), ("10", "1000")),
        ("partition", ("iid", "natural"), ("iid", "natural")),
        ("sampling_rate", (1.0, 0.5), ("1", "0.5")),
        ("rounds", (1, 4), ("1", "4")),
        ("trust", ("central", "local"), ("central", "local")),
        ("unit", ("user", "example"), ("user", "example")),
        ("mechanism", ("gaussian", "laplace"), ("gaussian", "laplace")),
    ):
        lines = [line(**{fact: value}) for value in values]
        heading = fact.replace("_", " ")
        assert tuple(row[heading] for row in shown(*lines)) == texts
        assert heading not in shown(lines[0])[0]
        if fact in ("data", "partition", "clients"):
            assert texts[0] in Cells(lines[:1]).title
            assert texts[0] not in Cells(lines).title
    # rounds and trust that follow from method and budget are no columns
    lines = [line(), line(label="FedTemp", rounds=12), line(epsilon=1.0, trust="central")]
    assert not {"rounds", "trust"} & set(Cells(lines).headings)


def test_a_mechanism_that_follows_from_the_trust_is_no_column():
    shared = {"epsilon": 1.0, "delta": 1e-5}
    lines = [line(**shared, trust="central", mechanism="gaussian")]
    lines.append(line(**shared, trust="distributed", mechanism="gaussian"))
    assert "trust" in Cells(lines).headings
    assert "mechanism" not in Cells(lines).headings
    lines.append(line(**shared, trust="central", mechanism="laplace"))
    assert {"trust", "mechanism"} <= set(Cells(lines).headings)
    parts = [Cells(lines).section(some)[-1] for some in lines]
    assert parts == ["central", "distributed", "central"]


def test_a_baseline_does_not_make_columns():
    lines = [line(**BASELINE), line()]
    assert Cells(lines).headings == Cells(lines[1:]).headings
    assert Cells(lines).title == "d, 100 clients, iid, mean ± std over 2 seeds"
    assert Cells([line(seeds=[0])]).title.endswith("one seed")
    assert Cells([line(seeds=[], failures=[{}, {}])]).title.endswith("over 2 seeds")


def test_csv_has_all_digits_and_fractions():
    failed = line(seeds=[], failures=[{"seed": 0}], before={}, after={}, bytes_up=None)
    failed["seconds"] = spread([])
    variant = line(settings={"weighting": "none", "bins_exponent": 5}, noise_std=[1.25, 2.5])
    read = list(csv.DictReader(io.StringIO(as_csv([variant, line(**BASELINE), failed]))))
    assert float(read[0]["ece_mean"]) == 0.0475
    assert float(read[0]["classwise_ece_std"]) == 0.0
    assert float(read[0]["mce_before"]) == 0.3
    assert read[0]["settings"] == "weighting=none;bins_exponent=5"
    assert read[0]["noise_std"] == "1.25;2.5"
    assert (read[0]["runs"], read[0]["failed"]) == ("2", "0")
    assert read[1]["epsilon"] == read[1]["partition"] == ""
    assert (read[2]["failed"], read[2]["ece_mean"], read[2]["seconds_mean"]) == ("1", "", "")


def test_the_terminal_shows_every_column_and_sections(capsys):
    lines = [line(**BASELINE), line(), line(label="FedTemp"), line(epsilon=1.0, delta=1e-5)]
    Console(width=200).print(terminal(as_table(lines), gap=0))
    said = capsys.readouterr().out
    for heading in Cells(lines).headings:
        assert heading in said
    assert said.count("├") == 2  # after the baseline, and before the budget of 1
