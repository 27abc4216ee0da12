"""One table, written for a terminal, as Markdown and as HTML; rows as CSV."""

from rich.progress import Progress

from fedcal.experiments.report import page, tables
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


def test_in_a_terminal_words_stand_left_and_numbers_right(capsys):
    rows = [("none", "9.5"), ("fednewton", "100.25")]
    tables.print_table(console(), tables.TextTable(("method", "ECE, %"), rows))
    shown = capsys.readouterr().out
    assert "│none      │" in shown
    assert "│    9.5│" in shown


def test_html_escapes_and_marks():
    html = page._environment().globals["html"]
    text = str(html(TABLE, "metrics"))
    assert text.startswith('<table class="metrics">')
    assert '<th scope="col">method</th><th scope="col" class="n">ECE, %</th>' in text
    assert '<td class="n"><span class="best">1.5</span></td>' in text
    assert '<th scope="row">&lt;c&gt;</th><td class="n">2.0<span class="word muted">†</sp' in text
    assert '0.1 <span class="word better">better</span><small>0 to 1</small>' in text
    assert '<th scope="rowgroup" colspan="2">&lt;rest&gt;</th>' in text
    assert "<thead>" not in html(tables.TextTable((), [("unit", "a user")], left=(0, 1)))
