"""Labels, ids and columns mean what their names say, in every format and at every entry point."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from refusals import each_is_refused, refused
from sklearn.linear_model import LogisticRegression

from fedcal import metrics
from fedcal.calibrators import TemperatureScaling
from fedcal.calibrators.conformity import Conformity
from fedcal.conformal import PredictionSets
from fedcal.datasets import IDS, from_arrays, from_frame, from_model, in_blocks, load
from fedcal.sites.rows import SiteRows, read_rows, shards_of

N = 100
P = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.2, 0.7]] * N)[:N]
"""Each row is right for its class."""
Y = np.arange(N) % 3


def by_npz(folder: Path, rows: dict[str, Any], **options: Any) -> Any:
    np.savez(folder / "x.npz", **rows)
    return load(folder / "x.npz", **options)


def columns(rows: dict[str, Any]) -> pd.DataFrame:
    """The rows as a frame; columns of scores are named by the classes, if these have names."""
    names = rows.get("class_names", range(rows["probs"].shape[1]))
    table = {f"prob_{name}": rows["probs"][:, j] for j, name in enumerate(names)}
    ids = {k: rows[k] for k in IDS if k in rows}
    return pd.DataFrame({"label": rows["labels"], **table, **ids})


def by_csv(folder: Path, rows: dict[str, Any], **options: Any) -> Any:
    columns(rows).to_csv(folder / "x.csv", index=False)
    return load(folder / "x.csv", **options)


def by_parquet(folder: Path, rows: dict[str, Any], **options: Any) -> Any:
    columns(rows).to_parquet(folder / "x.parquet")
    return load(folder / "x.parquet", **options)


def by_frame(folder: Path, rows: dict[str, Any], **options: Any) -> Any:
    return from_frame(columns(rows), **options)


def by_arrays(folder: Path, rows: dict[str, Any], **options: Any) -> Any:
    return from_arrays(**{k: x.tolist() for k, x in rows.items()}, **options)


def by_blocks(folder: Path, rows: dict[str, Any], **options: Any) -> Any:
    np.savez(folder / "b.npz", **{"client": np.zeros(N, np.int64), **rows})
    return in_blocks(folder / "b.npz", **options).dataset(0)


READERS: list[Callable[..., Any]] = [by_npz, by_csv, by_parquet, by_frame, by_arrays, by_blocks]
FRAMES = READERS[1:4]
every_reader = pytest.mark.parametrize("reader", READERS)


def accuracy(rows: Any) -> float:
    return float((rows.scores.argmax(axis=1) == rows.labels).mean())


# -- labels that are numbers -------------------------------------------------------------------

NAMES_AND_LABELS: list[tuple[list[str], Any]] = [
    (["1", "2", "3"], Y + 1),
    (["1", "2", "3"], (Y + 1).astype(str)),
    (["1.0", "2.50", "-3"], np.array([1, 2.5, -3])[Y]),
    (["900000000000207008", "3", "2"], np.array([900000000000207008, 3, 2])[Y].astype(str)),
    (["well", "ill", "dead"], Y),
    (["well", "ill", "dead"], np.array(["well", "ill", "dead"])[Y]),
]


@every_reader
@pytest.mark.parametrize("kept", [3, 1], ids="classes {}".format)
def test_labels_match_names_that_are_numbers_by_value(reader, kept, tmp_path):
    """Also at a site that lacks the highest grades, or all but the first."""
    for names, labels in NAMES_AND_LABELS:
        some = kept > Y
        rows = {"probs": P[some], "labels": labels[some]}
        if reader is by_blocks:
            rows["client"] = np.zeros(some.sum(), np.int64)
        if reader is by_csv and names[0] == "900000000000207008":
            rows["labels"] = np.array([f"{x} " for x in rows["labels"]])
        own = {**rows, "class_names": np.array(names)}
        if not (reader in FRAMES and all(n.isdecimal() for n in names)):
            assert accuracy(reader(tmp_path, own)) == 1, (names, labels[:3])
        assert accuracy(reader(tmp_path, rows, classes=names)) == 1, (names, labels[:3])


@every_reader
def test_what_labels_cannot_mean_is_refused(reader, tmp_path):
    words = ["well", "ill", "dead"]
    table: list[tuple[Any, str]] = [
        ((["1", "2", "3"], Y), "0'? at row 0; .*allowed: 1, 2, 3"),
        ((["1", "2", "more"], Y + 1), "some are numbers and some are not"),
        ((["1", "1.0", "2"], Y + 1), "class names must differ"),
        ((words, Y + 1), r"3'? at row 2; must be a class in \[0, 2\]"),
        ((words, np.array(["well", "0", "1"])[Y]), "'0' at row 1; .*: well, ill, dead"),
    ]
    each_is_refused(
        table, lambda case: reader(tmp_path, {"probs": P, "labels": case[1]}, classes=case[0])
    )


def test_labels_that_are_names_need_named_columns():
    """Cats, dogs and birds in the columns: in sorted order 3 % would be right instead of 94 %."""
    names = np.array(["cat", "dog", "bird"])
    refused("labels are names", from_arrays, probs=P, labels=names[Y])
    named = from_arrays(probs=P, labels=names[Y], classes=names.tolist())
    assert (named.labels == Y).all()
    assert named.class_names == tuple(names)
    # one column is of the class that is declared positive
    score, two = P[:, 0], np.where(Y == 0, "bad", "good")
    right = from_arrays(probs=score, labels=two, positive="bad")
    assert right.class_names == ("good", "bad")
    np.testing.assert_array_equal(right.scores[:, 1], score)
    assert (right.labels == (Y == 0)).all()
    unnamed = from_arrays(probs=pd.DataFrame({"prob_1": score}), labels=Y == 0)
    np.testing.assert_array_equal(unnamed.scores, right.scores)


def test_named_columns_come_in_the_order_that_was_asked_for(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("label,prob_cat,prob_dog,prob_bird\ndog,.1,.7,.2\nbird,.2,.2,.6\n")
    asked = load(path, classes=["bird", "cat", "dog"])
    assert asked.class_names == ("bird", "cat", "dog")
    assert asked.labels.tolist() == [2, 0]
    np.testing.assert_array_equal(asked.scores, [[0.2, 0.1, 0.7], [0.6, 0.2, 0.2]])
    refused("are for the classes cat, dog, bird, not a, b, c", load, path, classes=list("abc"))
    refused("with cat as the positive one, must be 2, got 3", load, path, positive="cat")
    path.write_text(path.read_text().replace("bird,.2", "Bird,.2"))
    refused("labels: 'Bird' at row 1; did you mean 'bird'", load, path)


def test_the_positive_class_becomes_column_1(tmp_path):
    p, y = np.array([0.1, 0.8, 0.7]), [0, 1, 0]
    given: dict[str, Any] = {"other_probs": p, "test_probs": p, "test_labels": y}
    plain = from_arrays(probs=p, labels=y, **given)
    turned = from_arrays(probs=p, labels=y, **given, positive="0")
    assert turned.class_names == ("1", "0")
    assert turned.labels.tolist() == turned.test_labels.tolist() == [1, 0, 1]
    for scores in (turned.scores, turned.test_scores, turned.other_scores):
        np.testing.assert_array_equal(scores, plain.scores[:, ::-1])
    np.savez(tmp_path / "x.npz", probs=p, labels=["no", "yes", "no"], class_names=["no", "yes"])
    assert load(tmp_path / "x.npz", positive="no").class_names == ("yes", "no")
    refused("unknown positive class 'maybe'", load, tmp_path / "x.npz", positive="maybe")


def test_a_site_whose_labels_count_from_1_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    some = np.tile(np.flatnonzero(Y < 2), 3)
    file = columns({"probs": P[some], "labels": Y[some] + 1})
    file.to_csv("site.csv", index=False)
    rows, _ = read_rows("site.csv", None)
    site_rows = SiteRows(rows, shards_of(rows), ("0", "1", "2"))
    refused("Labels count from 0 where", site_rows.doubts)


# -- missing ids -------------------------------------------------------------------------------

MISSING = {"NA": "client", "": "subject", "nan": "group", "None": "client"}


@every_reader
def test_a_missing_id_is_refused_with_how_many_and_the_first(reader, tmp_path):
    names = np.array([f"s{i:03}" for i in range(N)])
    for word, key in MISSING.items():
        ids = names.copy()
        ids[[3, 7, 90]] = word
        first = "line 5" if reader is by_csv else "row 3"
        rows = {"probs": P, "labels": Y, key: ids}
        refused(f"{key}: missing in 3 of 100 rows, .*{first}", reader, tmp_path, rows)


# -- masks and named columns -------------------------------------------------------------------

SETS = PredictionSets(Conformity("lac"), np.array([0.5]), 3, 0.1, input="probs")


def test_a_masked_array_is_refused_wherever_it_is_given():
    labels = np.ma.masked_array(Y, np.arange(N) == N - 1)
    probs = np.ma.masked_array(P, False)
    calls: list[Callable[[], object]] = [
        *(
            partial(from_arrays, **{"probs": P, "labels": Y, key: hidden})
            for key, hidden in (("labels", labels), ("probs", probs), ("client", labels))
        ),
        lambda: from_arrays(probs=P, labels=[*Y[:-1].tolist(), np.ma.masked]),
        lambda: from_arrays(probs=P, labels=Y, classes=np.ma.masked_array(["a", "b", "c"])),
        lambda: metrics.Reliability.of(P, labels),
        lambda: TemperatureScaling().fit(P, Y, input="probs").predict_proba(probs),
        lambda: SETS.predict_set(probs),
        lambda: from_model(LogisticRegression().fit(P, Y), (P, labels)),
    ]
    each_is_refused([(call, "masked") for call in calls], lambda call: call())


ORDER = [2, 0, 1]


@pytest.mark.parametrize("name", [str, int, "prob_{}".format])
def test_columns_with_numbers_are_put_in_their_order(name):
    frame = pd.DataFrame(P[:, ORDER], columns=[name(j) for j in ORDER])
    more = {"other_probs": frame, "test_probs": frame, "test_labels": Y}
    rows = from_arrays(probs=frame, labels=Y, **more)
    assert all((x == P).all() for x in (rows.scores, rows.other_scores, rows.test_scores))
    assert metrics.summary(frame, Y) == metrics.summary(P, Y)
    plain, named = (TemperatureScaling().fit(x, Y, input="probs") for x in (P, frame))
    assert plain.temperature == named.temperature
    assert (plain.predict_proba(frame) == plain.predict_proba(P)).all()
    assert (SETS.predict_set(frame) == SETS.predict_set(P)).all()


# -- one name however it is written ------------------------------------------------------------

ALIKE = [("St. Mary", "St.\u00a0Mary"), ("St. Mary", "St.  Mary "), ("Andr\u00e9", "Andre\u0301")]
UNSEEN = {"client": "ward\x07", "group": "ward\n1", "subject": "wa\u200brd"}


@every_reader
def test_white_space_makes_no_other_name_and_what_cannot_be_seen_is_refused(reader, tmp_path):
    options = {"probs": P, "labels": Y}
    for usual, name in ALIKE:
        ids = np.where(np.arange(N) < 50, usual, name)
        some = dict.fromkeys(IDS, ids)
        if reader is by_blocks:
            del some["client"]  # sorted by client, as they are written
        read = reader(tmp_path, options | some)
        assert read.group_names == (usual,)
        assert np.unique(read.subject).tolist() == [0]
        assert read.client_names in ((usual,), None)
        labels = {"labels": np.array([name, "b", "c"])[Y]}
        assert accuracy(reader(tmp_path, options | labels, classes=[usual, "b", "c"])) == 1
        message = "class names must differ"
        refused(message, reader, tmp_path, options, classes=[usual, name, "b"])
    for key, name in UNSEEN.items():
        rows = options | {key: np.array([name] * N)}
        refused(f"{key}: .* has a control or invisible", reader, tmp_path, rows)
