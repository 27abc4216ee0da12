"""A release is asked for by a person who knows that sites may have no new rows."""

from datetime import UTC, datetime

import pytest
from hospitals import Hospitals
from quarters import quarter

from fedcal.core.errors import FedcalError
from fedcal.experiments.study import kits
from fedcal.experiments.study.run import release
from fedcal.secure_aggregation.keys import read_key

pytestmark = pytest.mark.usefixtures("quick_figures")


def test_a_second_release_in_one_month_is_asked_about(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kits, "is_here", lambda host: True)
    there, asked = Hospitals(tmp_path), []
    there.joined()
    of = there.seal().study
    key = read_key(tmp_path / "sepsis-coordinator" / "coordinator.pem")

    def run(answer):
        with pytest.raises(FedcalError) as refusal:
            release(
                there.file, "second", at="127.0.0.1:1", confirm=lambda q: asked.append(q) or answer
            )
        return str(refusal.value)

    assert "was not asked for" not in run(False)  # it is the first one
    assert asked == []
    quarter(tmp_path / "first", of, key, date=f"{datetime.now(UTC):%Y-%m}-01")
    assert run(False) == "second was not asked for: a person must say yes"
    assert asked[0].startswith("first was released this month: have the sites new rows since?")
    assert "epsilon 1." in asked[0]
    assert "was not asked for" not in run(True)
