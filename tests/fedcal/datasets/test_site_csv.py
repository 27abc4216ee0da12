"""CSV files as hospitals have them: read as they are, or refused with all that is wrong."""

import gzip

import pytest
from refusals import refused

from fedcal.core.checks import InputError
from fedcal.datasets.site_csv import Reading, read_site_csv

CLASSES = ("survived", "sepsis")
NAMED = Reading.of("outcome at 30 days=label, Risk score = score", "0=survived,1=sepsis", False)

EXCEL = """sep=;\r
Patient; Outcome at 30 days ;Risk score;Ward\r
p1;0;0,25;a\r
 p2 ; 1 ;0,75;a\r
\r
;;;\r
p3;0;1;b\r
"""
"""Of German Excel: a first line of its own, decimal commas, spaces, lines of nothing."""

BAD = """patient,label,score
p1,1.0,.5
p2,,.3
p3,NaN,
p4,nan,.2
p5,NULL,0.3
,0,0.2
p6,dead,.2
p7,0,abc
p8,1,45
p9,1
p10,0,n/a
p11,0,inf
"""


def read(tmp_path, text, reading=None, classes=CLASSES, most=1.0, encoding="utf-8"):
    path = tmp_path / "rows.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    rows, notes = read_site_csv(path, classes, reading or Reading(), most)
    return rows.labels.tolist(), rows.scores[:, 1].tolist(), notes


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_a_file_of_german_excel_is_read_as_it_is(tmp_path, encoding):
    text = EXCEL.replace(";b\r", ";Bär\r")
    labels, scores, notes = read(tmp_path, text, NAMED, encoding=encoding)
    assert (labels, scores) == ([0, 1, 0], [0.25, 0.75, 1.0])
    expected = ["columns are separated by semicolons", "decimals have commas"]
    expected += ["column outcome at 30 days is label", "column Risk score is score"]
    expected += ["label 0 is survived", "label 1 is sepsis", "columns that are ignored: Ward"]
    windows = ["letters are read as Windows has them (cp1252)"] * (encoding == "cp1252")
    assert notes == windows + expected
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(text.encode(encoding)))
    rows, _ = read_site_csv(path, CLASSES, NAMED)
    assert rows.given.ids["subject"].tolist() == ["p1", "p2", "p3"]


def test_marks_and_labels_are_recognised(tmp_path):
    cases = [
        ("label,score\n0,.25\n1,0.75\n", CLASSES, []),
        ("label\tscore\nsurvived\t.25\nsepsis\t0.75\n", CLASSES, ["separated by tabs"]),
        ("label;score\n0.0;.25\nTRUE;0.75\n", CLASSES, ["separated by semicolons"]),
        ('sep=|\nlabel|score\n0|",25"\n1|"0,75"\n', CLASSES, ["by bars", "have commas"]),
        ("label,prob_0,prob_1\n0,.75,.25\n1,.25,.75\n", ("0", "1"), []),
        ("label,prob_0,prob_1\n0,.75,.25\n1,.25,.75\n", None, []),
        ("label,prob_sepsis,prob_survived\nsurvived,.25,.75\nsepsis,.75,.25\n", CLASSES, []),
    ]
    for text, classes, words in cases:
        labels, scores, notes = read(tmp_path, text, classes=classes)
        assert (labels, scores) == ([0, 1], [0.25, 0.75]), text
        assert len(notes) == len(words), notes
        assert all(word in note for word, note in zip(words, notes, strict=True)), notes


def test_all_bad_lines_are_counted_by_kind_and_the_first_three_are_shown(tmp_path):
    with pytest.raises(InputError) as refusal:
        read(tmp_path, BAD)
    assert str(refusal.value).split("; ") == [
        "11 of 12 lines cannot be used: 4 without an outcome (line 3: '', line 4: 'NaN', "
        "line 5: 'nan' and 1 more)",
        "1 without a patient (line 7: '')",
        "1 with a label that is none of 'survived', 'sepsis' (line 8: 'dead')",
        "2 with a score that is no number (line 9: 'abc', line 13: 'inf')",
        "1 with a score outside 0 to 1 (line 10: '45')",
        "1 with other than 3 entries (line 11: '2')",
        "1 without a score (line 12: 'n/a')",
        "--drop-missing leaves out those without an outcome or without a score",
    ]
    with pytest.raises(InputError) as refusal:
        read(tmp_path, BAD, Reading(drop_missing=True))
    assert "6 of 12 lines" in str(refusal.value)
    assert "--drop-missing" not in str(refusal.value)


def test_lines_without_outcome_or_score_are_left_out_up_to_a_share(tmp_path):
    lines = [f"{k % 2},0.{k:02}" for k in range(95)]
    text = "\n".join(["label,score", *lines, ",.1", "NA,.1", "n/a,", "1,NaN", "0,."])
    labels, _, notes = read(tmp_path, text, Reading(drop_missing=True), most=0.05)
    assert len(labels) == 95
    assert notes == ["left out: 3 without an outcome, 2 more without a score: 5.0 % of 100 lines"]
    some = text + "\n,0.1"
    with pytest.raises(InputError, match=r"4 .*, 2 .*: 5.9 % of 101 lines; at most 5 % may"):
        read(tmp_path, some, Reading(drop_missing=True), most=0.05)
    all_there = read(tmp_path, "label,score\n0,.1\n1,.2\n", Reading(drop_missing=True), most=0.0)
    assert all_there[2] == [
        "left out: 0 without an outcome, 0 more without a score: 0.0 % of 2 lines"
    ]


def test_what_is_no_such_file_is_one_line(tmp_path):
    named = Reading.of("risk=score", None, False)
    cases = [
        (b"\xff\xd8\x00\x01\x81", Reading(), "is not UTF-8 text"),
        (b"a\0b", Reading(), "NUL character"),
        ("", Reading(), "no column 'label' among"),
        ("a,b\n1,2\n", Reading(), "no column 'label' among 'a', 'b'; --map OLD=NEW"),
        ("label,risk\n1,.2\n", Reading(), "no score columns among 'label', 'risk'; --map"),
        ("label,score,risk\n1,.2,.2\n", named, "column 'score' appears twice"),
        ("label,score\n1,.2\n", named, "unknown column of --map 'risk'"),
        ("label,risk\n1,.2\n", Reading.of("risk=scroe", None, False), "'scroe' is no column of a"),
        ("label,score\n1,0,5\n", Reading(), "1 with other than 2 entries .line 2: '3'"),
        ('label;score\n1;"1.234,5"\n0;0,5\n', Reading(), "no number with a comma .line 2"),
        ('label,score\n"1,.2\n', Reading(), "line 2: unexpected end of data"),
        ("label,score\n1,.2\n", Reading.of(None, "1=dead", False), "unknown class of --labels"),
        ("label,prob_sepsis,prob_survived\n1,.2,.8\n", Reading(), "1 with a label that is none of"),
    ]
    for text, reading, problem in cases:
        refused(problem, read, tmp_path, text, reading)
    for text in ("a", "a=", "=b", "a=b,a=c", "a=b,"):
        refused("is not OLD=NEW, or OLD occurs twice", Reading.of, text, None, False)
