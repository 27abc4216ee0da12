"""A client: some epochs on its own rows."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from someapp.task import Net, load_data, right_of, train_epochs

app = ClientApp()


def loaders(context: Context):
    node = context.node_config
    return load_data(node["partition-id"], node["num-partitions"])


@app.train()
def train(msg: Message, context: Context) -> Message:
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    rows = loaders(context)[0]
    loss = train_epochs(model, rows, msg.content["config"]["lr"])
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(rows.dataset)})
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}
    return Message(content=RecordDict(content), reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    rows = loaders(context)[1]
    metrics = MetricRecord({"accuracy": right_of(model, rows), "num-examples": len(rows.dataset)})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=msg)
