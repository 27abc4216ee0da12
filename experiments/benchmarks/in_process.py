"""Flower's own loop over real messages, all in this process: no Ray, no SuperLink."""

from __future__ import annotations

import uuid

from flwr.app import Message

from fedcal.clients.client_app import client_app, site_of
from fedcal.core.shards import Shards
from fedcal.run.engines.flower import InProcessGrid
from fedcal.run.engines.inline import Unavailable
from fedcal.storage.artifact import Artifact
from fedcal.strategies.base import FederatedStrategy
from fedcal.strategies.server.transport import ANSWER


def run_in_process(
    strategy: FederatedStrategy, shards: Shards, *, unavailable: Unavailable | None = None
) -> Artifact:
    """Drive a strategy by Flower's `Strategy.start` over an in-process grid.

    Parameters
    ----------
    strategy
        fresh
    shards
        one shard for each of the plan's clients
    unavailable
        dropouts, by round

    Returns
    -------
    Artifact
        `strategy.result()` after the last round; same bits as `run_inline`.
    """
    ids = [uuid.uuid4().int >> 66 for _ in range(shards.clients)]  # as Flower's nodes have

    def gone(site: int, message: Message) -> bool:
        return (
            unavailable is not None
            and message.metadata.message_type == ANSWER
            and site in unavailable(int(message.metadata.group_id))
        )

    single = [shards.block(k, k + 1) for k in range(shards.clients)]
    app = client_app(lambda context: single[site_of(context)], simulated=True)
    strategy.start(InProcessGrid(app, ids, gone))
    artifact = strategy.result()
    artifact.learnt_on(shards.input)
    return artifact
