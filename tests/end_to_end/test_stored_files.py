"""Files that fedcal wrote before its modules moved (commit be47aa07) are read; a site's rows."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

from fedcal import datasets
from fedcal.calibrators import load
from fedcal.cli.main import exit_code_of
from fedcal.clients.site.guard import prepared
from fedcal.clients.site.policy import JobFacts
from fedcal.clients.site.preparing import prepare
from fedcal.clients.site.store import records_in
from fedcal.conformal import PredictionSets
from fedcal.conformal.sets import load as load_sets
from fedcal.core.checks import InputError
from fedcal.core.scores import rows_by_owner
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.privacy import Ledger
from fedcal.run.engines.inline import run_inline
from fedcal.sites.rows import SiteRows, read_rows, shards_of
from fedcal.strategies.server.job import Job

STORED = Path(__file__).with_name("stored")
LOGITS, LABELS = (np.load(STORED / "rows.npz")[name] for name in ("logits", "labels"))


@pytest.fixture
def stored(tmp_path):
    return Path(shutil.copytree(STORED, tmp_path / "stored"))


def test_calibrator():
    calibrator = load(STORED / "calibrator.npz")
    assert calibrator.predict_proba(LOGITS[:1]).round(6).tolist() == [[0.01347, 0.98653, 0.0]]


def test_sets():
    sets = load_sets(STORED / "sets.npz")
    assert np.nonzero(sets.predict_set(LOGITS[:3]))[1].tolist() == [2, 0, 1, 2, 0]
    arrays = dict(np.load(STORED / "sets.npz"))
    weighted = str(arrays["sets"]).replace('"aim": null', '"aim": {"kind": "target"}')
    refused("use by=class", PredictionSets.from_arrays, arrays | {"sets": np.array(weighted)})
    for stored in ({"name": "raps", "penalty": 0.0, "free": 0}, {"name": "aps", "seed": 0}):
        kept = json.loads(str(arrays["sets"])) | {"conformity": stored}
        given = PredictionSets.from_arrays(arrays | {"sets": np.array(json.dumps(kept))})
        assert given.conformity.regularisation == (0.0, 0)


def test_release():
    release = ScoreRelease.read(STORED, "release")
    accuracy = release.found.to_json()["metrics"]["accuracy"]
    assert accuracy["value"] == pytest.approx(0.6067336037607195, rel=1e-9)


def test_release_of_two_models():
    found = ScoreRelease.read(STORED, "two_views").found.to_json()
    change = found["metrics_difference"]["accuracy"]
    ends = (-0.05439471655125694, 0.019652571384826307)  # as wide as that version had it
    assert (change["low"], change["high"]) == pytest.approx(ends, rel=1e-9)


def test_ledger(stored):
    with Ledger(stored / "ledger.db") as ledger:
        assert (ledger.cap, ledger.spent()) == (20.0, (8.0, 1e-5))
        (entry,) = ledger.entries()
    assert (entry.run, entry.charged) == ("6fb8fe15fd385e6c", (1,))


def test_checkpoint_of_two_rounds_goes_on(stored):
    kept = json.loads((stored / "checkpoint/checkpoint.json").read_text("utf-8"))
    job = Job.from_fields(kept["job"])
    rows = rows_by_owner(LOGITS[:160], LABELS[:160], np.arange(160) % 8, 8)
    full = job.run(lambda s: run_inline(s, rows))
    rest = job.run(lambda s: run_inline(s, rows), folder=stored / "checkpoint", resume=True)
    assert len(kept["releases"]) == 2
    assert rest.artifact.temperature == full.artifact.temperature


def test_site_knows_what_it_answered(stored):
    site = stored / "site"
    asked = json.loads((stored / "question.json").read_text("utf-8"))
    job = JobFacts.of(Job.from_fields(asked["fields"]).terms(), asked["context"]["run"], "hub")
    with records_in(site) as records:
        (booked,) = records.booked()
        assert (booked.method, booked.epsilon) == ("fedbin", 1.0)
        with pytest.raises(InputError, match="until `fedcal site restored` is called"):  # a copy
            records.answer(job, 1, "q", lambda: b"words")
    (stored / "kit").mkdir()
    site.rename(stored / "kit/state")
    assert exit_code_of(["site", "restored", str(stored / "kit"), "--spent", "nothing"]) == 0


def test_a_site_keeps_groups_and_a_second_model_s_scores_in_its_folder(tmp_path):
    data = {"logits": LOGITS, "labels": LABELS, "other_logits": -LOGITS}
    data |= {"group": np.random.default_rng(1).choice(["a", "b", "c"], len(LABELS))}
    np.savez(tmp_path / "site.npz", **data)
    rows, _ = read_rows(str(tmp_path / "site.npz"), None)
    shown = SiteRows(rows, shards_of(rows), ("0", "1", "2"))
    assert "logits, 3 groups" in shown.described()
    prepare(tmp_path / "site", shards_of(rows))
    shards = prepared(tmp_path / "site").shards
    assert np.array(shards.group_names)[shards.groups].tolist() == data["group"].tolist()
    np.testing.assert_array_equal(shards.other, data["other_logits"])
    plain = datasets.from_arrays(**{k: data[k] for k in ("logits", "labels")})
    assert shards_of(plain).clients == 1
    prepare(tmp_path / "plain", shards_of(plain))
    kept = {path.name for path in (tmp_path / "plain").glob("*.npy")}
    assert kept == {"logits.npy", "labels.npy"}
