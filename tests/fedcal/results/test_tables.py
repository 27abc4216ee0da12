"""One table, written for a terminal, as Markdown and as HTML; rows as CSV."""

from rich.progress import Progress

from fedcal.core.pages import Marked, Table
from fedcal.results import page, terminal
from fedcal.results.terminal import Steps, console

ROWS = (
    (Marked("a|b", small="1 of 5 runs"), Marked("1.5", best=True)),
    ("<c>", Marked("2.0", mark="†")),
    ("d", Marked("0.1", mark="better", small="0 to 1")),
)
TABLE = Table("T", ("method", "ECE, %"), ROWS, left=(0,), sections={2: "<rest>"})


def test_no_text_controls_the_terminal(capsys):
    bad = "x\x1b[31m[red]\nrow\u202e"
    to = console()
    terminal.print_table(to, Table(bad, (bad, "b"), [(bad, Marked(bad, mark=bad))]))
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
    terminal.print_table(console(), Table("", ("method", "ECE, %"), rows, left=(0,)))
    shown = capsys.readouterr().out
    assert "│ none      │" in shown
    assert "│    9.5 │" in shown


def test_html_escapes_and_marks():
    text = page.Page("", "", [TABLE]).html()
    assert '<th scope="col">method</th><th scope="col" class="n">ECE, %</th>' in text
    assert '<td class="n"><span class="best">1.5</span></td>' in text
    assert '<th scope="row">&lt;c&gt;</th><td class="n">2.0<span class="word muted">†</sp' in text
    assert '0.1 <span class="word better">better</span><small>0 to 1</small>' in text
    assert '<th scope="rowgroup" colspan="2">&lt;rest&gt;</th>' in text
    facts = page.Page("", "", [Table("T", (), [("unit", "a user")])]).html()
    assert "<thead>" not in facts
