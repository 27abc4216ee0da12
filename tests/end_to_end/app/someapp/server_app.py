"""The server: federated averaging."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from someapp.task import Net

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    torch.manual_seed(0)
    rounds, rate = context.run_config["num-server-rounds"], context.run_config["learning-rate"]
    result = FedAvg().start(
        grid=grid,
        initial_arrays=ArrayRecord(Net().state_dict()),
        train_config=ConfigRecord({"lr": rate}),
        num_rounds=rounds,
    )
    print("trained", len(result.arrays), "arrays")
