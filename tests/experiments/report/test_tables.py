"""One table, written for a terminal, as Markdown and as HTML; rows as CSV."""

import io

from rich.console import Console
from rich.progress import Progress

from fedcal.core import pages
from fedcal.experiments.report import tables
from fedcal.experiments.report.terminal import Steps, console

ROWS = (
    (tables.Marked("a|b", small="1 of 5 runs"), tables.Marked("1.5", best=True)),
    ("<c>", tables.Marked("2.0", mark="†")),
    ("d", tables.Marked("0.1", mark="better", small="0 to 1")),
)
TABLE = tables.TextTable(("method", "ECE, %"), ROWS, "T", sections={2: "<rest>"})


def test_no_text_controls_the_terminal(capsys):
    bad = "x\x1b[31m[red]\nrow\u202e"
    to = console()
    tables.print_table(
        to, tables.TextTable((bad, "b"), [(bad, tables.Marked(bad, mark=bad))], title=bad)
    )
    to.print(f"fedcal: {bad}")
    for number in (1, 2):
        progress = Steps(bad, Progress(disable=True))
        progress(number, 2, bad)
        assert "\x1b" not in progress._line
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "x\\x1b[31m[red]\\nrow\\u202e" in shown  # in a cell also of one line


def test_markdown():
    assert tables.markdown(TABLE).splitlines() == [
        *("### T", "", "| method | ECE, % |", "|---|---:|"),
        r"| a\|b 1 of 5 runs | **1.5** |",
        "| <c> | 2.0† |",
        "| d | 0.1 better 0 to 1 |",
    ]


def test_html_escapes_and_marks():
    text = str(tables.html(TABLE, "metrics"))
    assert text.startswith('<table class="metrics">')
    assert '<th scope="col">method</th><th scope="col" class="n">ECE, %</th>' in text
    assert '<td class="n"><span class="best">1.5</span></td>' in text
    assert '<th scope="row">&lt;c&gt;</th><td class="n">2.0<span class="word muted">†</sp' in text
    assert '0.1 <span class="word better">better</span><small>0 to 1</small>' in text
    assert '<th scope="rowgroup" colspan="2">&lt;rest&gt;</th>' in text
    assert "<thead>" not in tables.html(tables.TextTable((), [("unit", "a user")], left=(0, 1)))


def test_a_narrow_terminal_loses_nothing():
    to = Console(file=io.StringIO(), width=20, markup=False)
    tables.print_table(to, tables.TextTable(("name", "n"), [("x" * 60, "1")] * 2, sections={1: ""}))
    written = to.file.getvalue()
    assert "x" * 60 in written
    assert written.count("├") == 1


def test_numbers_are_aligned_and_csv_has_every_key_and_all_digits():
    part = pages.Table("T", ("class", "rows", "AUC"), (("a", 12345, 0.5), ("b", 2, 1 / 3)))
    table = tables.of_part(part)
    assert set(table.left) == {0}
    assert list(table.rows) == [("a", "12,345", "0.5"), ("b", "2", "0.333333")]
    rows = [{"a": 0.1, "b": [1.25, 2.5]}, {"a": None, "c": {"k": 1}}]
    assert tables.csv_text(rows).splitlines() == ["a,b,c", "0.1,1.25;2.5,", ",,k=1"]
    assert tables.csv_text(rows, ("c", "a")).splitlines()[0] == "c,a"
