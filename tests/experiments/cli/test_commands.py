"""What the commands show: percentages for people, progress on a terminal, files of rows."""

import json

import pytest

from fedcal.experiments.cli.main import _run

pytestmark = pytest.mark.usefixtures("quick_figures")


BASELINE = "--method pooled-temperature"


@pytest.mark.parametrize(
    "words", [f"simulate {BASELINE}", "evaluate", f"compare {BASELINE} --seeds 1 --jobs 1"]
)
def test_a_report_may_come_later(words, tmp_path, capsys):
    asked = [*words.split(), "--data", "imdb-binary", "--quiet", "--out"]
    later = tmp_path / "later"
    assert _run([*asked, str(later), "--no-report"]) == 0
    names = {path.name for path in later.iterdir() if path.name[0] != "."}
    assert not any(name.endswith((".html", ".png", ".svg")) for name in names)
    capsys.readouterr()
    assert _run(["report", str(later), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"out": str(later / "report.html")}
    assert _run([*asked, str(tmp_path / "now")]) == 0
    now = {path.name for path in (tmp_path / "now").iterdir()}
    assert names < {path.name for path in later.iterdir()} == now
