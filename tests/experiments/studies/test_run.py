"""Running an experiment: settings, networks of the user's, files, interruptions."""

from typing import Any

import pytest
from refusals import refused

from experiments.studies.expected import checked
from experiments.studies.result import Reproduction
from experiments.studies.run import reproduce
from fedcal import compare
from fedcal.core.checks import Interrupted

pytestmark = pytest.mark.usefixtures("undrawn")


def values(found: Reproduction) -> dict[tuple[str, ...], Any]:
    return {
        key: row["classwise_ece"][0] for key, row in checked(found.experiment, found.rows).items()
    }


def test_cells_are_what_compare_gives_and_claims_are_judged(ran, network):
    found, _ = ran
    options: dict[str, Any] = {"clients": 100, "partition": "dirichlet:0.1", "rounds": 2}
    options |= {"sampling_rate": 0.5, "epsilon": "inf", "seeds": 2, "jobs": 1}
    beside = compare(network, method="fedbbq", **options).cells[1]
    (row,) = [row for row in found.rows if row["title"] == "FedBBQ all weight"]
    assert row["classwise_ece"] == beside["after"]["classwise_ece"]["values"]
    assert row["accuracy"] == beside["after"]["accuracy"]["values"]
    assert row["accuracy_before"] == beside["before"]["accuracy"]["mean"]
    assert (row["network"], row["rounds"], row["clients"]) == ("net.npz", 2, 100)
    words = {v.text.partition(" ")[0]: v.word for v in found.verdicts}
    assert words["Without"] == "holds"  # FedNewton without privacy is the pooled temperature
    assert words["FedNewton's"] == "holds"
    assert words["FedCal"] == "not told here"


def test_an_interrupted_run_goes_on_where_it_was(ran, small, network, tmp_path):
    given: dict[str, Any] = {"networks": [network], "jobs": 1, "out": tmp_path}

    def stop(done: int, total: int) -> None:
        assert total == 8
        if done == 6:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="--resume"):
        reproduce(small, progress=stop, **given)
    assert not (tmp_path / "small.json").exists()
    refused(r"unfinished run of small.*--resume", reproduce, small, **given)
    seen: list[int] = []
    again = reproduce(small, resume=True, progress=lambda done, total: seen.append(done), **given)
    assert seen[0] == 5  # the first part was whole
    assert values(again) == values(ran[0])
    assert (tmp_path / "small.json").exists()
