"""Runs of commit 951345b, again from their own config.toml: the same results."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedcal.experiments.cli.main import _run

pytestmark = pytest.mark.usefixtures("quick_figures")
EARLIER = Path(__file__).with_name("earlier")
RUNS = sorted(folder.name for folder in EARLIER.iterdir())
assert len(RUNS) == 3
OF_THE_MOMENT = ("seconds", "versions")
SENTENCES = ("statement", "sees", "not_protected", "noise")
"""Of the privacy record: they may be put better, or say more."""


def close(new: Any, old: Any) -> Any:
    """What `old` is to be compared with: floats within 1e-8, all else as it is.

    Processors add floats in other orders: a bootstrap's quantile was seen to move by 2e-9."""
    if isinstance(old, dict):
        return {key: close(new[key], value) for key, value in old.items()}
    if isinstance(old, list):
        return [close(a, b) for a, b in zip(new, old, strict=True)]
    return pytest.approx(old, rel=1e-9, abs=1e-8) if isinstance(old, float) else old


@pytest.mark.parametrize("run", RUNS)
def test_a_config_of_an_earlier_version_gives_its_results(run, tmp_path):
    config = EARLIER / run / "config.toml"
    assert _run(["simulate", "--config", str(config), "--out", str(tmp_path), "--quiet"]) == 0
    new, old = (
        json.loads((f / "result.json").read_text("utf-8")) for f in (tmp_path, EARLIER / run)
    )
    for key in OF_THE_MOMENT:
        new.pop(key), old.pop(key)
    for key in SENTENCES:
        assert new["privacy"][key]
        old["privacy"].pop(key)
    new["privacy"] = {key: new["privacy"][key] for key in old["privacy"]}
    assert {key: new[key] for key in old} == close(new, old)
    assert (tmp_path / "config.toml").read_text("utf-8") == config.read_text("utf-8")
    lines = [
        (f / "rounds.jsonl").read_text("utf-8").splitlines() for f in (tmp_path, EARLIER / run)
    ]
    rounds, before = ([json.loads(line) for line in part] for part in lines)
    for record in (*rounds, *before):
        record.pop("seconds", None)
    assert rounds == close(rounds, before)
