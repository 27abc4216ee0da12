"""The rows of a site: from files, from functions."""

import sys
from pathlib import Path

import numpy as np
import pytest
from refusals import each_is_refused

from fedcal.core.checks import InputError
from fedcal.datasets.site_csv import Reading
from fedcal.sites.rows import SiteRows, read_rows, shards_of

LOGITS = np.arange(12.0).reshape(6, 2)
LABELS = [0, 1, 0, 1, 1, 0]


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module of the site's own, in its working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_rows", raising=False)
    (tmp_path / "own_rows.py").write_text(
        "import numpy as np\n"
        f"LOGITS, LABELS = np.array({LOGITS.tolist()}), {LABELS}\n"
        "def pair():\n    return LOGITS, LABELS\n"
        "def named():\n    return LOGITS, ['sick' if y else 'well' for y in LABELS]\n"
        "def mapping():\n    return {'probs': np.full((6, 2), .5), 'labels': LABELS,\n"
        "            'subject': [1, 1, 2, 2, 3, 3]}\n"
        "def more():\n    return {'logits': LOGITS, 'labels': LABELS, 'rows': 1}\n"
        "def fails():\n    raise OSError('the database is away')\n"
    )
    return "own_rows"


def test_rows_come_from_a_function(module, tmp_path):
    rows = read_rows(f"{module}:pair", None)[0]
    assert np.array_equal(rows.logits, LOGITS)
    described = SiteRows(rows, shards_of(rows), ("well", "sick")).described()
    assert described == "own_rows:pair: 6 rows, 2 classes (well, sick), logits"
    assert read_rows(f"{module}:named", ["well", "sick"])[0].labels.tolist() == LABELS
    other = shards_of(read_rows(f"{module}:mapping", None)[0])
    assert (other.input, other.clients) == ("probs", 1)
    assert other.subjects is not None
    assert sys.path[0] != str(Path.cwd())
    for name, clients in (("one", [7] * 6), ("two", [7] * 5 + [8])):
        np.savez(tmp_path / f"{name}.npz", logits=LOGITS, labels=LABELS, client=clients)
    assert shards_of(read_rows("one.npz", None)[0]).rows.tolist() == [6]
    table = [
        (f"{module}:more", "must return"),
        (f"{module}:fails", "failed: OSError: the database is away"),
        ("two.npz", "must be 1, got 2"),
    ]
    each_is_refused(table, lambda source: read_rows(source, None))
    with pytest.raises(InputError, match=f"are for CSV files, not {module}:pair"):
        read_rows(f"{module}:pair", None, Reading(drop_missing=True))


def test_class_names_say_which_column_a_label_means(tmp_path):
    """The digest tells the other sites of this order: it must be that of the labels."""
    names = ["sick" if y else "well" for y in LABELS]
    rows = "".join(f"{a},{b},{name}\n" for (a, b), name in zip(LOGITS, names, strict=True))
    plain, own = tmp_path / "plain.csv", tmp_path / "own.csv"
    plain.write_text(f"logit_0,logit_1,label\n{rows}")
    own.write_text(f"logit_well,logit_sick,label\n{rows}")
    for file in (plain, own):
        assert read_rows(str(file), ["well", "sick"])[0].labels.tolist() == LABELS
        turned = read_rows(str(file), ["sick", "well"])[0]
        assert turned.labels.tolist() == [1 - y for y in LABELS]
    np.testing.assert_array_equal(turned.scores, np.array(LOGITS)[:, ::-1])  # columns are named
    with pytest.raises(InputError, match=r"labels are names .*the columns of scores have none"):
        read_rows(str(plain), None)
