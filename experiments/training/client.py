"""The Flower client of a training: local SGD on its rows, and a look at the global model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedcal.clients.client_app import site_of
from fedcal.streams import Purpose, stream

if TYPE_CHECKING:
    from fedcal.experiments.training.local import LocalTrainer

WEIGHT = "num-examples"
"""The key that Flower's FedAvg weights replies by."""


def training_app(trainer_of: Callable[[Context], LocalTrainer]) -> ClientApp:
    """A ClientApp that works on the trainer that `trainer_of` gives.

    It answers `query.who` (its site), `train` (weights after local SGD and the mean loss on the
    way) and `evaluate` (loss and accuracy of the global model on its test rows).
    """
    app = ClientApp()

    @app.query("who")
    def who(message: Message, context: Context) -> Message:
        record = ConfigRecord({"site": site_of(context)})
        return Message(RecordDict({"who": record}), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        from fedcal.experiments.training.local import descend

        trainer, site = trainer_of(context), site_of(context)
        _load(trainer, message)
        asked = message.content.config_records["config"]
        x, y = trainer.rows("train", site)
        loss = descend(
            trainer.model,
            x,
            y,
            epochs=int(asked["local-epochs"]),  # type: ignore[arg-type]
            batch_size=int(asked["batch-size"]),  # type: ignore[arg-type]
            lr=float(asked["lr"]),  # type: ignore[arg-type]
            rng=stream(
                int(asked["seed"]),  # type: ignore[arg-type]
                Purpose.SAMPLING,
                int(asked["round"]),  # type: ignore[arg-type]
                f"batches of {site}",
            ),
        )
        metrics = MetricRecord({"loss": loss, WEIGHT: len(y)})
        arrays = ArrayRecord(trainer.model.state_dict())
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        from fedcal.experiments.training.local import judge

        trainer, site = trainer_of(context), site_of(context)
        _load(trainer, message)
        x, y = trainer.rows("test", site)
        loss, accuracy = judge(trainer.model, x, y)
        metrics = MetricRecord({"loss": loss, "accuracy": accuracy, WEIGHT: len(y)})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def _load(trainer: LocalTrainer, message: Message) -> None:
    arrays = message.content.array_records["arrays"]
    trainer.model.load_state_dict(arrays.to_torch_state_dict())
