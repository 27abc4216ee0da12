"""What the process of a real site loads of fedcal: `python tests/support/loaded.py` counts it.

Three sites of a federation are asked for counts of scores by site, as a study asks them, and answer
under the protocol of secure aggregation, in a process of their own.
"""

import datetime
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

_ASKED = """
import json, sys
from pathlib import Path
from fedcal.clients.site.process import runtime, site_app
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
asked = json.loads(Path(sys.argv[1]).read_text())
apps = [site_app.site_app(Path(folder)) for folder in asked["folders"]]

def said(app, kind, content):
    records = {name: ConfigRecord(of) for name, of in content.items()}
    context = Context(1, 1, {}, RecordDict(), asked["fields"])
    message = Message(RecordDict(records), 1, f"query.{kind}", group_id="1")
    return app(message, context).content

run = {"job": {"run": asked["records"]["context"]["run"]}}
enrolled = [said(app, "enrol", run).config_records["said"]["said"] for app in apps]
answer = said(apps[0], "answer", {**asked["records"], "members": {"enrolments": enrolled}})
assert answer.config_records["said"]["said"]
found = {n: m.__file__ for n, m in sys.modules.items() if n.startswith("fedcal")}
heavy = [name for name in ("torch", "scipy.stats", "pandas") if name in sys.modules]
print(json.dumps([found, heavy]))
"""


def loaded(folder: Path) -> tuple[dict[str, str], list[str]]:
    """Return module of fedcal -> its file, and which heavy libraries were imported."""
    from fedcal.clients.site.policy import Policy
    from fedcal.clients.site.preparing import prepare
    from fedcal.core.shards import Shards
    from fedcal.privacy import Federation
    from fedcal.privacy.agreement import key_of_job
    from fedcal.privacy.query import Asked
    from fedcal.privacy.wire import asked_records
    from fedcal.secure_aggregation.keys import make_key
    from fedcal.secure_aggregation.roster import Committee, Member, Roster
    from fedcal.strategies.server.job import Job

    names = ("alder", "birch", "cedar")
    keys = [make_key(folder / f"{name}.pem").public for name in names]
    roster = Roster("trees", tuple(map(Member, names, keys)), Committee((0, 1, 2), 2))
    policy = Policy(roster.digest, datetime.date(2999, 12, 31), epsilon_total=4.0, delta_total=1e-5)
    facts: Any = {"committee": 3, "threshold": 2, "unit": "subject", "mechanism": "laplace"}
    federation = Federation(
        *(3, 2), epsilon=1.0, trust="distributed", noise_source="system", quorum=0.9, **facts
    )
    settings = {"by": "site", "groups": json.dumps(names), "bins": 10}
    job = Job(
        *("evaluate", federation, settings, "probs"),
        roster=roster.to_text(),
        secure_aggregation="protocol",
    )
    rng = np.random.default_rng(1)
    p = rng.uniform(size=200)
    rows = Shards(
        *(np.column_stack([1 - p, p]), (rng.uniform(size=200) < p).astype(np.int64)),
        *(np.array([0, 200]), "probs", np.arange(200) // 2),
    )
    for name in names:
        own: Any = {"roster": roster, "policy": policy, "sign_key": folder / f"{name}.pem"}
        prepare(folder / name, rows, terms=job.terms(), **own)
    query = job.strategy().open_round(1).request.query
    asked = Asked(query, 1, "r", key_of_job(job.to_fields(), job.plan))
    content = {
        "folders": [str(folder / name) for name in names],
        "fields": job.to_fields(),
        "records": asked_records(asked),
    }
    (folder / "asked.json").write_text(json.dumps(content))
    command = [sys.executable, "-c", _ASKED, str(folder / "asked.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found, heavy = json.loads(done.stdout.splitlines()[-1])
    return found, heavy


def lines(file: str | Path) -> int:
    """All lines of a file."""
    return len(Path(file).read_text("utf-8").splitlines())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        found, _ = loaded(Path(made))
    for name, file in sorted(found.items(), key=lambda pair: -lines(pair[1])):
        print(f"{lines(file):6,} {name}")
    print(f"{sum(map(lines, found.values())):6,} lines of {len(found)} files, loaded at a site")
