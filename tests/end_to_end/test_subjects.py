"""Unit "subject" from the file to the statement, and refused without the column."""

import math
from typing import Any

import numpy as np
import pytest

from fedcal import compare, datasets, simulate
from fedcal.core.checks import InputError
from fedcal.run.sweep import digest_of

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
def file(tmp_path):
    np.savez(tmp_path / "rows.npz", **arrays())
    return tmp_path / "rows.npz"


def test_rows_that_name_nobody_are_refused_before_anything_is_asked(tmp_path):
    book = tmp_path / "budget.db"
    for method in ("fednewton", "fedtemp", "acct"):
        with pytest.raises(InputError, match=MISSING):
            simulate(arrays(False), clients=CLIENTS, method=method, ledger=book, **PRIVATE)
        assert not book.exists()
    with pytest.raises(InputError, match=MISSING):
        compare(arrays(False), method="fednewton", epsilon="inf,1", unit="subject", clients=CLIENTS)
    exact = {**PRIVATE, "epsilon": math.inf}  # nothing is promised to anybody
    assert simulate(arrays(False), clients=CLIENTS, **exact).privacy["epsilon"] is None


def test_a_comparison_carries_the_column_to_its_workers(file):
    grid: dict[str, Any] = {"method": "fednewton,fedbbq", "epsilon": 1, "seeds": 1}
    grid |= {"unit": "user,subject,example", "partition": "natural"}
    here, there = (compare(file, jobs=jobs, **grid) for jobs in (1, 2))
    rows = [[cell["after"] for cell in c.to_json()["cells"]] for c in (here, there)]
    assert rows[0] == rows[1]


def test_data_that_differ_in_subjects_alone_are_others():
    plain, named = (datasets.from_arrays(**arrays(subjects)) for subjects in (False, True))
    assert digest_of(plain) != digest_of(named)


# --- a server -----------------------------------------------------------------------------------
