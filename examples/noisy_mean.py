"""A mean over clients with Gaussian noise, as many write it. It is not private: do not copy it."""

import math

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

EPSILON, DELTA, CLIP, RATE = 1.0, 1e-5, 1.0, 0.5
SIGMA = math.sqrt(2 * math.log(1.25 / DELTA)) / EPSILON  # of a sum in which a client adds CLIP
rng = np.random.default_rng()
client, server = ClientApp(), ServerApp()


def load(context: Context) -> np.ndarray:
    """Return the private numbers of a client."""
    return np.load(f"client-{context.node_config['partition-id']}.npy")


@client.query()
def answer(message: Message, context: Context) -> Message:
    """Send sums, and the number of rows that the server divides by."""
    rows = load(context)
    sums = {"rows": len(rows), "sum": float(rows.sum()), "squares": float((rows**2).sum())}
    return Message(RecordDict({"answer": MetricRecord(sums)}), reply_to=message)


def add_noise(value: float, scale: float) -> float:
    """Add Gaussian noise."""
    return value + rng.normal(0, scale)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Ask some of the clients, and release the mean and the spread of all their rows."""
    asked = [node for node in grid.get_node_ids() if rng.random() < RATE]
    messages = [Message(RecordDict(), node, "query") for node in asked]
    answers = [reply.content["answer"] for reply in grid.send_and_receive(messages)]
    rows = sum(one["rows"] for one in answers)
    scale = SIGMA * CLIP / len(answers)
    mean = add_noise(sum(one["sum"] for one in answers) / rows, scale)
    mean = min(max(mean, -CLIP), CLIP)
    square = add_noise(sum(one["squares"] for one in answers) / rows, scale)
    spread = math.sqrt(max(square - mean**2, 0.0))
    result = {"mean": mean, "spread": spread, "epsilon": EPSILON, "asked": asked}
    context.state["result"] = ConfigRecord(result)
