"""The study page's own lines over a SuperLink, then what goes wrong at real sites."""

import json
import re
import shutil
import signal
import time
from pathlib import Path

import compose
import pytest
from town import PATIENCE, Town

from fedcal.privacy.ledger import Ledger
from fedcal.storage.artifact import CHECKPOINT

pytestmark = pytest.mark.slow

GUIDE = compose.ROOT / "docs" / "guide" / "study.md"


def lines_of(section: str, language: str = "console") -> list[str]:
    text = GUIDE.read_text("utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    (block,) = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    return [block] if language == "python" else block.replace("$ ", "").splitlines()


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    with Town(tmp_path_factory.mktemp("town")) as town:
        yield town


def test_from_an_empty_folder_to_the_first_table_as_the_guide_says(town):
    (town.folder / "rows.py").write_text(lines_of("Rows", "python")[0])
    town.follow("python rows.py")
    for line in [*lines_of("Before any site is contacted"), *lines_of("Three files")]:
        town.follow(line)
    assert town.typed <= 12
    record = town.record("2026Q4")
    assert record["absent"] == []
    words = {site: one["words"] for site, one in record["sites"].items()}
    assert "too low" in words["cedar"]
    assert "too extreme" in words["elm"]
    for site in ("alder", "birch", "dogwood"):
        assert words[site].startswith(("no fault", "cannot tell"))
    pages = [*(town.folder / "2026Q4").iterdir()]
    for page in (page for page in pages if page.suffix in (".html", ".json", ".toml")):
        assert str(town.folder) not in page.read_text("utf-8"), page
    for join in town.folder.glob("*.join"):
        assert set(json.loads(join.read_text())) == {
            *("schema", "study", "terms", "site", "key", "connection", "signature")
        }


def test_a_quarter_with_a_site_away_and_a_server_that_dies_is_charged_once(town):
    town.end("elm", signal.SIGKILL)
    kept = shutil.ignore_patterns("flower-*")
    shutil.copytree(town.folder / "sepsis-kits/elm/state", town.folder / "backup", ignore=kept)
    (line,) = lines_of("The next quarter")
    town.begin("coordinator", line)
    work = town.folder / "sepsis-server" / "runs" / "2027Q1" / "server"
    deadline = time.monotonic() + PATIENCE
    while not (work / CHECKPOINT).exists():
        assert time.monotonic() < deadline, town.logs()
        time.sleep(0.05)
    town.end("serve", signal.SIGKILL)
    assert town.running.pop("coordinator").wait(2 * PATIENCE) == 1  # three minutes of silence
    assert "the same command, in a minute, goes on with it" in town.log("coordinator")
    assert not (town.folder / "2027Q1").exists()
    town.serve()
    town.call(line)
    record = town.record("2027Q1")
    assert record["absent"] == ["elm"]
    with Ledger(town.folder / "sepsis-server" / "ledger-1.sqlite") as book:
        assert [entry.epsilon for entry in book.entries()] == [1.0, 1.0]
    assert [job["epsilon"] for job in town.spent("alder")] == [1.0, 1.0]
    town.call("fedcal study verify 2027Q1")


def test_two_sites_away_are_too_many_and_nothing_is_charged(town):
    town.end("dogwood", signal.SIGTERM)
    output = town.call("fedcal study run sepsis.toml 2027Q2", 1)
    # the server knows that a site is away, or waits for it in vain
    assert re.search("3 of 5 sites (were there|had connected)", output)
    assert re.search("nothing was asked|no question was sent", output)
    assert len(town.spent("alder")) == 2
    town.start("dogwood")


def test_a_site_from_a_backup_answers_nothing_until_its_operator_says_what_was_spent(town):
    state = town.folder / "sepsis-kits/elm/state"
    shutil.rmtree(state)
    shutil.copytree(town.folder / "backup", state)
    town.begin("elm", "fedcal site start sepsis-kits/elm")
    town.until("elm", "site restored", len(town.log("elm")) - 1)
    town.end("elm", signal.SIGTERM)
    town.call("fedcal site restored sepsis-kits/elm --spent nothing")
    town.start("elm")
    town.call("fedcal study run sepsis.toml 2027Q2")
    record = town.record("2027Q2")
    assert record["absent"] == []
    assert set(record["changes"]) == {"2026Q4", "2027Q1"}


def test_half_a_reply_is_waited_for_half_a_minute(town):
    """Of birch's signature under the sum the beginning comes, and no more."""
    town.end("birch", signal.SIGTERM)
    half = Path(__file__).parents[2] / "support" / "half_a_reply"
    town.env |= {"PYTHONPATH": str(half), "FEDCAL_HALF": "confirm"}
    town.start("birch")
    for name in ("PYTHONPATH", "FEDCAL_HALF"):
        del town.env[name]
    began = time.monotonic()
    town.call("fedcal study run sepsis.toml 2027Q3")
    assert time.monotonic() - began < 120  # Flower alone waits for more than 180 s
    log = (town.folder / "sepsis-kits/birch/state/flower.log").read_text("utf-8", "replace")
    assert "made up: cut off" in log
    assert town.record("2027Q3")["absent"] == []


def test_no_release_is_made_above_the_years_budget(town):
    output = town.call("fedcal study run sepsis.toml 2027Q4", 2)
    assert "epsilon 4 of 4 is spent" in " ".join(output.split())
    assert len(town.spent("alder")) == 4
    assert not (town.folder / "2027Q4").exists()
    assert "0 left" in town.call("fedcal site status sepsis-kits/alder")
