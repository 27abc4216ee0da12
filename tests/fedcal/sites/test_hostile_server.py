"""A real site under a real SuperLink whose server keeps to nothing: it answers what was agreed."""

import json
import os
import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import hostile_server
import pytest
from asked_site import rows_of
from hostile_server import JOB
from superlink import SuperLink

from fedcal.clients.site.guard import prepared
from fedcal.clients.site.preparing import prepare
from fedcal.clients.site.store import RECORDS, records_of
from fedcal.run.engines.flower_app import app_toml
from fedcal.run.engines.supernode import supernode

pytestmark = pytest.mark.slow

RUN = "0123456789abcdef"
REASON = "<class 'fedcal.clients.site.process.site_app.Refused'>:<'{}; see the site's own log'>"


@pytest.fixture(scope="module")
def link(tmp_path_factory):
    link = SuperLink(tmp_path_factory.mktemp("superlink"), ["a"])
    link.env["PYTHONPATH"] = str(Path(hostile_server.__file__).parent)
    with link.running():
        link.register("a")
        yield link


def played(
    link: SuperLink,
    folder: Path,
    play: str,
    *,
    code: Mapping[str, str] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """What the server heard in a run of its own."""
    app, out = folder / play, folder / f"{play}.json"
    app.mkdir()
    given = {**JOB.to_fields(), "play": play, "run": RUN, "out": str(out), **fields}
    text = app_toml(given).replace("fedcal.strategies.server_app", "hostile_server")
    if code:
        files = ", ".join(f'"{name}"' for name in ("pyproject.toml", *code))
        text = re.sub(r"fab-include = \[[^]]*\]", f"fab-include = [{files}]", text)
        text = text.replace("fedcal.clients.client_app:app", "hostile:app")
    (app / "pyproject.toml").write_text(text, "utf-8")
    for name, source in (code or {}).items():
        (app / name).write_text(source, "utf-8")
    shown = link.run(app)
    assert out.exists(), shown
    heard: dict[str, Any] = json.loads(out.read_text("utf-8"))
    return heard


def test_each_thing_that_was_not_agreed_is_refused(link, tmp_path):
    site, mark = tmp_path / "site", tmp_path / "mark"
    prepare(site, rows_of(877), terms=JOB.terms())
    files = {"root_certificates": link.root, "key": link.key("a")}
    with supernode(site, fleet=link.fleet, **files):
        heard = played(link, tmp_path, "all")
        honest, again = heard.pop("honest"), heard.pop("replayed")
        assert isinstance(honest, list)
        assert again == honest
        assert len(heard) == 20
        for name, output in heard.items():
            assert output == REASON.format("InputError"), name
        # the same name, other facts: one by one they are honest
        changed = played(link, tmp_path, "changed", epsilon=8.0)
        assert changed == {"changed": REASON.format("InputError")}
        code = {"hostile.py": f"open({str(mark)!r}, 'w').close()\napp = None"}
        bundled = played(link, tmp_path, "bundled", code=code, run="another")
        assert bundled == {"bundled": REASON.format("InputError")}
        giants = played(link, tmp_path, "giants", run="giants")
        assert giants == dict.fromkeys(giants, "InputError; see the site's own log")
        (home,) = site.glob("flower-*")
        assert not any("apps" in folders for _, folders, _ in os.walk(home))
    assert not mark.exists()
    with records_of(prepared(site)) as records:
        (booked,) = records.booked()
    with closing(sqlite3.connect(site / RECORDS)) as known:
        answered = known.execute("SELECT job, round FROM answers").fetchall()
    assert (booked.epsilon, answered) == (1.0, [(booked.job, 1)])
    lines = (site / "site.log").read_text("utf-8").splitlines()
    output = [re.sub(r"^[\d-]+ [\d:]+ ", "", line) for line in lines]
    assert sum(line.startswith("refused to answer: ") for line in output) == len(heard) + 4
    assert sum(line.startswith("answered: ") for line in output) == 2
    assert all(line.startswith(("asked: ", "refused", "answered: ")) for line in output)
    refusals = "\n".join(line for line in output if line.startswith("refused"))
    for why in (
        *("states no 'noise'", "states no 'norms'", "states no 'rounds'", "states no 'seed'"),
        *("a question cannot be read", "terms that a request is of", "masks whose seeds"),
        *("low = 0.3 instead of 0.25", "epsilon of the run", "'hostile.py'"),
        *("'query.answer' of more than 65536 KiB", "'query.who' of more than 64 KiB"),
    ):
        assert why in refusals, refusals
