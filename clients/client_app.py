"""The Flower client: a batch of one through the same `answer` as everywhere else."""

import logging
from collections.abc import Callable

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedcal.clients.answers import contribute
from fedcal.clients.replies import answer_with
from fedcal.clients.site.sources import assigned_to, site_rows
from fedcal.core import checks
from fedcal.core.shards import Shards
from fedcal.privacy import wire
from fedcal.privacy.query import Request

log = logging.getLogger("fedcal")


def site_of(context: Context) -> int:
    """Return the site that this node is, from its own configuration."""
    return int(context.node_config["partition-id"])


def client_app(
    shard_of: Callable[[Context], Shards],
    *,
    simulated: bool = False,
    assigned_to: Callable[[Context], int] | None = None,
) -> ClientApp:
    """Return a ClientApp whose rows come from `shard_of`, a `Shards` of one client.

    Coins and noise come from the operating system; only a `simulated` client takes the seed that
    a query names, which whoever sent it could subtract. `assigned_to` says to how many clients the
    data of the run config are dealt, where `shard_of` takes its rows from there.

    It answers two messages: `query.who` (its site) and `query.answer` (its contribution, masked if
    the server says so). Of an error the server learns the class; a text that may tell of
    rows stays in the site's log.
    """
    app = ClientApp()

    @app.query("who")
    def who(message: Message, context: Context) -> Message:
        record = ConfigRecord({"site": site_of(context)})
        if assigned_to is not None:
            record["clients"] = assigned_to(context)
        return Message(RecordDict({"who": record}), reply_to=message)

    @app.query("answer")
    def reply_to(message: Message, context: Context) -> Message:
        method = str(context.run_config.get("method", ""))
        if simulated and ":" in method:  # of another package, perhaps with a question of its own
            from fedcal.core import imports

            imports.named("method", method)
        request = request_in(message)
        try:
            sites = np.array([site_of(context)])
            words = contribute(shard_of(context), request, sites, simulated=simulated)[0]
        except checks.ContributionRefused:
            raise  # its text tells of the bound, never of rows
        except Exception as e:
            log.exception("site %d cannot answer %r", site_of(context), request.query.kind)
            raise RuntimeError(f"{type(e).__name__}; see the site's own log") from None
        return answer_with(words, message, request, site_of(context))

    return app


def request_in(message: Message) -> Request:
    """Return the question of a `query.answer`; InputError if it makes no sense."""
    records = message.content.config_records
    return wire.from_fields(records["query"], records.get("context", {}))


app = client_app(
    lambda context: site_rows(context.run_config, context.node_config),
    simulated=True,
    assigned_to=lambda context: assigned_to(context.run_config, context.node_config),
)
"""App of each node of a simulation: Flower loads it as `fedcal.clients.client_app:app`."""
