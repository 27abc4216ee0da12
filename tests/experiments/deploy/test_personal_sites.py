"""Four hospitals: one release over a SuperLink with secure sums, then a calibrator at each site."""

import json
from pathlib import Path

import numpy as np
import pytest
from federated import Federated
from machine import Machine

from fedcal import datasets
from fedcal.core.shards import Shards
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.personal.at_site import calibrator_of, recalibrated
from fedcal.personal.prior import site_priors
from fedcal.personal.releases import SitesRelease

pytestmark = pytest.mark.slow

ROWS = datasets.load("heart-disease")
SAID = {
    "query.who": {"who": ["classes", "input", "names", "place", "version"]},
    "query.ready": {"ready": ["why"]},
    "query.enrol": {"said": ["said"]},
    "query.answer": {"said": ["said"]},
    "query.confirm": {"said": ["said"]},
    "query.open": {"said": ["said"]},
    "query.result": {"ok": []},
}
"""All that a site may send: which records, and their fields."""


class Hospitals(Federated):
    """The four sites of heart-disease, and what their server hears."""

    sites = ROWS.client_names or ()

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.heard = self.folder / "heard.jsonl"
        overheard = Path(__file__).parents[2] / "support" / "overheard"
        self.env |= {"PYTHONPATH": str(overheard), "HEARD": str(self.heard)}

    def messages(self) -> list[tuple[str, int, dict[str, list[str]]]]:
        return [tuple(json.loads(line)) for line in self.heard.read_text().splitlines()]


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    with Machine(tmp_path_factory.mktemp("hospitals")) as machine:
        there = Hospitals(machine)
        there.up()
        digest = there.agree()
        for k, name in enumerate(there.sites):
            own = ROWS.client == k
            arrays = {"logits": ROWS.logits[own], "labels": ROWS.labels[own]}
            there.member(name, digest, arrays=arrays)
        machine.until(lambda: machine.online(there.env) == len(there.sites))
        yield there


@pytest.mark.parametrize("method", [("fedprior",), ("evaluate", "--by", "site")])
def test_one_release_then_calibrators_at_home_and_nothing_else_leaves_a_site(there, method):
    out, form = method[0], {"fedprior": SitesRelease}.get(method[0], ScoreRelease)
    told = ("--epsilon", "1", "--unit", "example", "--trust", "distributed", "--quorum", "1")
    there.heard.unlink(missing_ok=True)
    run = there.start(out, "--method", *method, *told)
    _, err = run.communicate(timeout=300)
    assert run.returncode == 0, err
    heard = there.messages()
    assert {kind for kind, _, _ in heard} == SAID.keys()
    assert [fields for kind, _, fields in heard if fields != SAID[kind]] == []
    sent = [size for kind, size, _ in heard if kind == "query.answer"]
    assert len(sent) == len(there.sites)
    assert len(set(sent)) == 1  # however many rows
    logs = [there.log(name) for name in there.sites]
    release = form.read(there.folder / out, form.form)
    assert release.question.group_names == there.sites
    made = set()
    for name in there.sites:
        arrays = np.load(there.folder / f"{name}.npz")
        own = Shards(arrays["logits"], arrays["labels"], np.array([0, len(arrays["labels"])]))
        home = recalibrated(own, [site_priors(release)[name]])
        assert calibrator_of(home.parameters[0], 2, "logits").calibrated(own.logits).shape
        made.add(tuple(home.parameters[0].tolist()))
    assert len(made) == len(there.sites)
    assert there.messages() == heard
    assert [there.log(name) for name in there.sites] == logs
    assert all(log.count("answered: ") == log.count("result received: ") for log in logs)
