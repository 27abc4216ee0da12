"""Running an experiment: cells, claims, and the files of its folder."""

from typing import Any

from refusals import refused

from experiments.studies.run import reproduce
from fedcal import compare


def test_cells_are_what_compare_gives_and_claims_are_judged(ran, network):
    found, out = ran
    options: dict[str, Any] = {"clients": 100, "partition": "dirichlet:0.1", "rounds": 2}
    options |= {"sampling_rate": 0.5, "epsilon": "inf", "seeds": 2, "jobs": 1}
    beside = compare(network, method="fedbbq", **options).cells[1]
    (row,) = [row for row in found.cells if row["title"] == "FedBBQ all weight"]
    assert row["classwise_ece"] == beside["after"]["classwise_ece"]["values"]
    assert row["accuracy"] == beside["after"]["accuracy"]["values"]
    assert (row["network"], row["rounds"], row["clients"]) == ("net.npz", 2, 100)
    words = {v.text.partition(" ")[0]: v.word for v in found.verdicts}
    assert words["Without"] == "holds"  # FedNewton without privacy is the pooled temperature
    assert words["FedNewton's"] == "holds"
    assert words["FedCal"] == "not told here"
    assert {path.name for path in out.iterdir()} == {
        f"small.{kind}" for kind in ("json", "md", "csv")
    }
    assert "FedBBQ all weight,fedbbq[weighting=all]" in (out / "small.csv").read_text("utf-8")


def test_what_does_not_fit_is_refused_before_anything_runs(ran, small, network):
    refused("holds small: --overwrite", reproduce, small, networks=[network], out=ran[1])
    refused("twice", reproduce, small, networks=[network], data=[network])


def test_an_option_that_a_study_does_not_have_is_refused():
    refused("no choice of data", reproduce, "audit", data=["rows.npz"])
