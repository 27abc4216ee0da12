"""Whether a site's gap grew: chance is not called harm, harm is, and Holm counts the sites."""

import numpy as np
import pytest

from fedcal.core.numerics import Floats, Integers
from fedcal.metrics.bootstrap import LEAST, changes_by_client, changes_record, gap_change


def sites(rows: int, number: int) -> tuple[Integers, tuple[str, ...], Floats, Floats]:
    """Owner and name of each site, calibrated scores, and outcomes."""
    rng = np.random.default_rng(rows)
    owner = np.repeat(np.arange(number), rows)
    score = rng.uniform(0.15, 0.85, len(owner))
    outcome = (rng.random(len(owner)) < score).astype(np.float64)
    return owner, tuple(map(str, range(number))), score, outcome


@pytest.mark.parametrize(("rows", "off"), [(20, 0.06), (100, 0.03), (400, 0.1)])
def test_a_gap_of_the_same_size_on_the_other_side_is_called_neither(rows, off):
    owner, names, score, outcome = sites(rows, 1000)
    changes = changes_by_client(owner, names, (score + off, outcome), (score - off, outcome))
    assert len(changes) == 1000
    for side in ("p_worse", "p_better"):
        often = np.mean([getattr(change, side) < 0.05 for change in changes.values()])
        assert 0.02 <= often <= 0.068  # 0.05 and 2.6 standard errors; few rows are a bit careful


def test_a_widened_gap_is_harm_and_a_site_of_few_rows_has_no_verdict():
    owner, names, score, outcome = sites(400, 4)
    before, after = score.copy(), score.copy()
    before[owner == 1] -= 0.12  # mended
    after[owner == 2] += 0.12  # harmed
    before[owner == 3], after[owner == 3] = 0.0, 1.0
    few = np.append(np.flatnonzero(owner < 3), np.flatnonzero(owner == 3)[:19])
    one, other = ((view[few], outcome[few]) for view in (before, after))
    changes = changes_by_client(owner[few], names, one, other)
    assert changes_record(changes, "positive")["worse"] == ["2"]
    assert changes_record(changes, "positive")["better"] == ["1"]
    assert set(changes) == {"0", "1", "2"}


def test_rows_that_are_all_right_are_no_proof():
    """20 rows of confidence 0.95, all right: observed variance 0, and nothing is shown."""
    ones, owner = np.ones(20), np.zeros(20, np.int64)
    changed = changes_by_client(owner, ("a",), (0.99 * ones, ones), (0.95 * ones, ones))["a"]
    assert changed.after == pytest.approx(-0.05)
    assert changed.p_worse > 0.1


def test_what_buckets_hide_and_what_nobody_would_act_on_is_no_verdict():
    surely = gap_change(0.02, 0.10, 0.01)
    assert surely.p_worse < 1e-6
    assert surely.p_better == 1
    assert gap_change(0.02, 0.10, 0.01, slack=0.06).p_worse == pytest.approx(0.5)
    assert gap_change(0.02, 0.10, 0.01, move_std=0.08).p_worse > 0.15
    assert gap_change(0.5, 0.5 + 0.9 * LEAST, 0.0).p_worse == 1
