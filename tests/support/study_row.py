"""A row of a study as its runs leave it."""

from experiments.studies.spec import Record

CELL: Record = {
    "network": "net",
    "part": "paper",
    "block": "b",
    "row": "",
    "title": "FedTemp",
    "method": "fedtemp",
    "baseline": False,
    "epsilon": None,
    "rounds": 12,
    "sampling_rate": 0.1,
    "clients": 100,
    "partition": "dirichlet:0.1",
    "classwise_ece": [0.01, 0.03],
    "accuracy": [0.9, 0.9],
    "accuracy_before": 0.9,
    "failures": [],
}
