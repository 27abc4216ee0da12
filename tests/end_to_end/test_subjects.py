"""Unit "subject" from the file to the statement, and refused without the column."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcal.strategies.server_app as server
from fedcal import datasets, simulate
from fedcal.clients.client_app import app as site_app
from fedcal.errors import InputError
from fedcal.experiments import compare
from fedcal.experiments.engines.flower import InProcessGrid
from fedcal.experiments.planner.plan import plan
from fedcal.experiments.planner.words import approximations
from fedcal.experiments.runs import digest_of
from fedcal.strategies.outcome import Outcome

CLIENTS, CLASSES, ROWS = 8, 3, 160
PRIVATE: dict[str, Any] = {"epsilon": 1.0, "unit": "subject", "seed": 3}
MISSING = "unit 'subject' needs a column subject"


def arrays(subjects: bool = True) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    labels = rng.integers(0, CLASSES, ROWS)
    logits = rng.normal(0, 3, (ROWS, CLASSES))
    logits[np.arange(ROWS), labels] += 2
    about = {"subject": np.arange(ROWS) // 4} if subjects else {}
    return {"logits": logits, "labels": labels, "client": np.arange(ROWS) % CLIENTS, **about}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    np.savez(tmp_path / "rows.npz", **arrays())
    return tmp_path / "rows.npz"


def test_a_run_says_what_it_promises_to_subjects():
    dealt = " ".join(simulate(arrays(), clients=CLIENTS, **PRIVATE).privacy["statement"])
    natural = simulate(arrays(), partition="natural", **PRIVATE).privacy
    own = " ".join(natural["statement"])
    for said in (dealt, own):
        assert "adding or removing all rows of one subject at one client" in said
        assert "A person at two sites is two subjects, unless the sites have agreed on ids" in said
        assert "Rows were held out one by one, not by subject" in said
    assert "Partition dirichlet:0.1 deals rows, not subjects" in dealt
    assert "deals rows, not subjects" not in own
    assert (natural["unit"], natural["adjacency"], natural["diameter"]) == (
        *("subject", "add-remove"),
        1,
    )
    apart = {**arrays(), "test_logits": arrays()["logits"], "test_labels": arrays()["labels"]}
    told = simulate(apart, partition="natural", **PRIVATE).privacy["statement"]
    assert "held out" not in " ".join(told)


def test_rows_that_name_nobody_are_refused_before_anything_is_asked(tmp_path):
    book = tmp_path / "budget.db"
    for method in ("fednewton", "fedtemp", "acct", "auto"):
        with pytest.raises(InputError, match=MISSING):
            simulate(arrays(False), clients=CLIENTS, method=method, ledger=book, **PRIVATE)
        assert not book.exists()
    with pytest.raises(InputError, match=MISSING):
        compare(arrays(False), method="fednewton", epsilon="inf,1", unit="subject", clients=CLIENTS)
    exact = {**PRIVATE, "epsilon": math.inf}  # nothing is promised to anybody
    assert simulate(arrays(False), clients=CLIENTS, **exact).privacy["epsilon"] is None


def test_subjects_of_one_row_are_told_apart_from_rows_by_their_noise_alone():
    alone = {**arrays(), "subject": np.arange(ROWS)}
    common = {"clients": CLIENTS, "epsilon": 1e6, "seed": 3, "trust": "local"}
    one, other = (simulate(alone, unit=unit, **common) for unit in ("subject", "example"))
    assert one.privacy["noise_std"] == other.privacy["noise_std"]
    for a, b in zip(one.rounds, other.rounds, strict=True):
        np.testing.assert_allclose(a["values"], b["values"], rtol=1e-2, atol=0.1)
        assert a["values"] != b["values"]


# --- a comparison -------------------------------------------------------------------------------


def test_a_comparison_carries_the_column_to_its_workers(file):
    grid: dict[str, Any] = {"method": "fednewton,fedbbq", "epsilon": 1, "seeds": 1}
    grid |= {"unit": "user,subject,example", "partition": "natural"}
    here, there = (compare(file, jobs=jobs, **grid) for jobs in (1, 2))
    rows = [[cell["after"] for cell in c.to_json()["cells"]] for c in (here, there)]
    assert rows[0] == rows[1]
    said = " ".join(here.statement)
    assert "Trust central, unit subject: epsilon bounds what adding or removing all rows" in said
    for one, all_, many in (
        ("row", "subject", "rows"),
        ("row", "user", "rows"),
        ("subject", "user", "subjects"),
    ):
        small, large = {"row": "example"}.get(one, one), all_
        assert f"for each {one} counts runs of unit {small} only: runs of unit {large}" in said
        assert f"their epsilon times the {all_}'s {many}, and more delta still" in said


def test_a_subject_of_one_deal_is_nobody_in_another():
    grid: dict[str, Any] = {"method": "fednewton", "epsilon": 1, "seeds": 2, "clients": CLIENTS}
    said = " ".join(compare(arrays(), partition="iid", unit="subject", jobs=1, **grid).statement)
    assert "spend up to epsilon = 1, delta = 1e-05 for each subject" in said
    assert "do not cover who has rows in several deals" in said


def test_data_that_differ_in_subjects_alone_are_others():
    plain, named = (datasets.from_arrays(**arrays(subjects)) for subjects in (False, True))
    assert digest_of(plain) != digest_of(named)


# --- a planner ----------------------------------------------------------------------------------


def test_a_plan_says_that_each_row_was_a_subject():
    for unit in ("subject", "user"):
        facts: dict[str, Any] = {"clients": 30, "rows_per_client": 40, "classes": 3}
        said = " ".join(approximations(plan(**facts, epsilon=4.0, unit=unit, methods=["acct"])))
        assert ("Each made-up row was a subject of its own" in said) is (unit == "subject")


# --- a server -----------------------------------------------------------------------------------


class Dealt(InProcessGrid):
    """Nodes that deal the data of the run config."""

    def __init__(self, run: dict[str, Any]) -> None:
        super().__init__(site_app, list(range(50, 50 + CLIENTS)))
        for context in self._contexts.values():
            context.run_config.update(run)


def test_a_server_that_knows_the_data_refuses_them_without_the_column(file, tmp_path):
    np.savez(tmp_path / "nameless.npz", **arrays(False))
    fields = {
        **{"method": "fednewton", "clients": CLIENTS, "classes": 0, "rounds": 2, "input": ""},
        **{"sampling-rate": 1.0, "epsilon": 1.0, "delta": 1e-5, "unit": "subject", "trust": ""},
        **{"seed": 3, "mechanism": "auto", "quorum": 0.9, "noise-source": "seeded"},
        **{"committee": 0, "threshold": 0, "colluding": 0, "roster": ""},
        **{"settings": "{}", "secure-aggregation": "none", "dropout": 0.0, "ledger": ""},
        **{"cap": 0.0, "cap-delta": 0.0, "partition": "natural", "data": str(file)},
        **{"tolerant": False, "timeout": 60.0, "grace": 60.0, "class-digest": ""},
        **server.FRESH,
    }
    want = simulate(file, partition="natural", rounds=2, **PRIVATE)
    for given in ({}, {"classes": CLASSES, "input": "logits"}):
        run = {**fields, **given, "out": str(tmp_path / f"out{len(given)}")}
        server.serve(Dealt(run), run)
        found = Outcome.load(Path(run["out"]))
        assert json.dumps(found.records) == json.dumps(want.rounds)
        run |= {"data": str(tmp_path / "nameless.npz"), "out": str(tmp_path / "none")}
        with pytest.raises(InputError, match=MISSING):
            server.serve(Dealt(run), run)
