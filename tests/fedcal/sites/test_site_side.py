"""A site of a study while it runs: its rows, its rules, and what it shows of itself."""

import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import Mock

import pytest
from hospitals import table, write_rows
from policies import FACTS
from quarters import release_of
from refusals import refused

from fedcal.cli.main import exit_code_of
from fedcal.clients.site.guard import alone, prepared
from fedcal.clients.site.restored import restore
from fedcal.clients.site.results import keep_result
from fedcal.clients.site.store import records_in
from fedcal.core.checks import FedcalError
from fedcal.privacy.agreement import Terms
from fedcal.sites import site_side
from fedcal.sites.joining import Kit, Offer, join
from fedcal.sites.site_side import start, status

pytestmark = pytest.mark.usefixtures("quick_figures")
OWN = replace(FACTS, unit="subject", adjacency="add-remove", delta=0.0, rounds=1)


@pytest.fixture
def there(there, monkeypatch):
    """Hospitals that have joined; a start ends where it would look for the server."""
    there.joined(years=2)
    monkeypatch.setattr(site_side, "check_fleet", Mock(side_effect=FedcalError("nobody listens")))
    return there


def started(there, data=None):
    output = []
    with pytest.raises(FedcalError, match="nobody listens"):
        start(there.kit(), data, output.append)
    return output


def test_a_site_starts_with_what_it_has_accepted(there):
    refused("has accepted nothing, or has other keys", start, there.kit(), None, print)
    sealed = there.seal()
    there.offer().accept()
    assert started(there) == []
    ours = prepared(there.kit() / "state")
    assert (ours.roster, ours.names, ours.place) == (sealed.roster, ("survived", "sepsis"), 0)
    assert ours.policy is not None
    assert ours.policy.federation == sealed.roster.digest
    other = write_rows(there.folder / "2027Q1.csv", table(40))
    assert "40 patients" in "".join(started(there, "2027Q1.csv"))
    assert Kit.read(there.kit()).rows[0] == str(other)  # from now on
    other.write_text(other.read_text().translate(str.maketrans(",.", ";,")))
    assert "40 patients" in "".join(started(there))
    write_rows(other, {"label": ["sepsis"]})
    refused("no score columns", start, there.kit(), str(other), print)
    refused("cannot be used. Start the site on a terminal", start, there.kit(), str(other), None)
    log = (there.kit() / "state" / "site.log").read_text("utf-8")
    assert "until it listens" in log
    assert " 40 " not in log


@pytest.mark.parametrize("form", ["release", "prior"])
def test_the_printed_command_recalibrates_as_it_stands(form, there, capsys):
    """Of a file with semicolons, commas and a column more; the server's release names no class."""
    kit, columns = there.kit(), table()
    off = [1 / (1 + (1 / p - 1) * 4) for p in columns["score"]]
    columns |= {"score": off, "ward": ["a"] * len(off)}
    rows = write_rows(there.folder / "semicolons.csv", columns)
    lines = [line.replace(",", ";").replace(".", ",") for line in rows.read_text().splitlines()]
    rows.write_text("\n".join(lines))
    there.seal()
    there.offer().accept()
    started(there, str(rows))
    of = Kit.read(kit).study
    release = release_of(of)
    release.of_classes(None)
    release.write(there.folder, form)
    content = {f"{form}.npz": (there.folder / f"{form}.npz").read_bytes()}
    for _ in range(2):  # a message that comes twice
        own, terms = kit / "state", Terms({}, of.plan, (), form)
        keep_result(own, "run", form, content, terms)
    with alone(kit / "state"):
        _, _, command = status(kit)["next"].partition("recalibrate at home, fedcal ")
    assert exit_code_of(command.split()) == 0
    output = capsys.readouterr()
    assert "Recalibrate: your model says" in output.out
    assert (kit / "home" / "recalibrated" / "calibrator.npz").exists()
    assert "cross-validated on your 300 patients" in output.out


def test_what_was_spent_outlasts_new_keys_and_a_copy_is_noticed(there):
    kit = there.kit()
    there.seal()
    there.offer().accept()
    started(there)
    with records_in(kit / "state") as records:
        records.answer(OWN, 1, "question", lambda: b"answer")
        records.finish(OWN.job)
    join(kit, "rows.csv", new_keys=True)
    refused("has accepted nothing, or has other keys", start, kit, None, print)
    assert status(kit)["next"].startswith("wait for sepsis.sealed")
    there.seal()
    there.offer().accept()
    started(there)
    found = status(kit)
    assert (found["epsilon"]["spent in all"], found["records"]) == (1.0, None)
    today = datetime.now(UTC).date()
    quarter = f"{today.year}Q{(today.month - 1) // 3 + 1}"
    assert started(there) == [f"warning: the same rows as in {quarter}, answered on {today}"]
    assert "the same rows" not in (kit / "state" / "site.log").read_text("utf-8")
    assert started(there, str(write_rows(there.folder / "new.csv", table(300, 9)))) == []
    copy = (kit / "state" / "records.sqlite").read_bytes()
    with records_in(kit / "state") as records:
        records.answer(replace(OWN, job="2" * 64), 1, "question", lambda: b"answer")
    (kit / "state" / "records.sqlite").write_bytes(copy)
    assert status(kit)["next"].startswith(f"fedcal site restored {kit}")


def test_a_year_whose_budget_is_spent_says_when_the_next_one_begins(there):
    """Four of eight: what was carried over counts in this year, and so in all."""
    there.seal()
    there.offer().accept()
    kit = there.kit()
    (kit / "state").mkdir()
    records_in(kit / "state").close()
    assert restore(kit / "state", "4,0,subject") == 0
    found, study = status(kit), Kit.read(kit).study
    spent = {"spent this year": 4.0, "left this year": 0.0, "spent in all": 4.0, "left in all": 4.0}
    assert found["epsilon"] == spent | {"a release": 1.0}
    assert found["next"] == f"nothing: the budget of {study.policy().in_words(1)} is spent"
    caps = study.policy()
    assert (caps.epsilon_a_year, caps.delta_a_year) == (study.epsilon, caps.delta_total / 2)


def test_what_is_put_over_the_folder_of_a_site_is_not_what_it_has_accepted(there):
    """A kit that is unpacked over the old one may have a study, rules and rows in it.

    What else a kit may not have: tests/end_to_end/test_attacks_on_studies.py.
    """
    kit, sealed = there.kit(), there.seal()
    there.offer().accept()
    digest = status(kit)["digest"]
    unit = (kit / "fedcal-site.service").read_text("utf-8")
    assert f'"{there.own()}"' in next(
        line for line in unit.splitlines() if "ReadWritePaths" in line
    )
    text = (kit / "study.toml").read_text("utf-8").replace("epsilon = 4.0", "epsilon = 40.0")
    other = {"study.toml": text, "study.sealed": "{}", "rows.json": '{"data": "os:getcwd"}'}
    for name, content in (other | {"ca.crt": "server.s authority in"}).items():
        (kit / name).write_text(content)
    started(there)
    state = status(kit)
    assert (state["digest"], state["rows"]) == (digest, str(there.folder / "rows.csv"))
    ours = prepared(kit / "state")
    assert (ours.policy, ours.roster) == (sealed.study.policy(sealed.roster.digest), sealed.roster)
    (kit / "home").symlink_to("..")
    for call in (
        lambda: start(kit, None, print),
        lambda: status(kit),
        lambda: join(kit, "rows.csv"),
    ):
        refused("home is not part of a kit", call)


def test_a_folder_may_be_moved_and_a_copy_of_it_is_refused(there):
    there.seal()
    joined, moved, copied = (there.folder / "alder.join").read_bytes(), Path("moved"), Path("copy")
    shutil.move(there.kit(), moved)
    Offer.read(moved, there.sealed).accept()
    shutil.copytree(moved, copied)
    for call in (lambda: Offer.read(copied, there.sealed), lambda: start(copied, None, print)):
        refused("has not joined", call)
    refused("is not part of a kit", join, copied, "rows.csv")
    join(moved, "rows.csv")
    assert (there.folder / "alder.join").read_bytes() == joined
