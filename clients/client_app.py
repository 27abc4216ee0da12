"""The Flower client: a batch of one through the same `answer` as everywhere else."""

import logging
from collections.abc import Callable

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedcal.clients.answers import contribute
from fedcal.clients.site.process.limits import OverLimit
from fedcal.clients.site.sources import dealt_to, site_rows
from fedcal.core import errors, optional, types
from fedcal.core.shards import Shards
from fedcal.privacy.request import Request

log = logging.getLogger("fedcal")


def site_of(context: Context) -> int:
    """Return the site that this node is, from its own configuration."""
    return int(context.node_config["partition-id"])


def client_app(
    shard_of: Callable[[Context], Shards],
    *,
    simulated: bool = False,
    dealt_to: Callable[[Context], int] | None = None,
) -> ClientApp:
    """Return a ClientApp whose rows come from `shard_of`, a `Shards` of one client.

    Coins and noise come from the operating system; only a `simulated` client takes the seed that
    a query names, which whoever sent it could subtract. `dealt_to` says to how many clients the
    data of the run config are dealt, where `shard_of` takes its rows from there.

    It answers two messages: `query.who` (its site) and `query.answer` (its contribution, masked if
    the server names a cohort). Of an error the server learns the class; a text that may tell of
    rows stays in the site's log.
    """
    app = ClientApp()

    @app.query("who")
    def who(message: Message, context: Context) -> Message:
        record = ConfigRecord({"site": site_of(context)})
        if dealt_to is not None:
            record["clients"] = dealt_to(context)
        return Message(RecordDict({"who": record}), reply_to=message)

    @app.query("answer")
    def reply_to(message: Message, context: Context) -> Message:
        method = str(context.run_config.get("method", ""))
        if simulated and ":" in method:  # of another package, perhaps with a question of its own
            optional.named("method", method)
        request = request_in(message)
        try:
            sites = np.array([site_of(context)])
            words = contribute(shard_of(context), request, sites, simulated=simulated)[0]
        except errors.ContributionRefused:
            raise  # its text tells of the bound, never of rows
        except Exception as e:
            log.exception("site %d cannot answer %r", site_of(context), request.query.kind)
            raise RuntimeError(f"{type(e).__name__}; see the site's own log") from None
        return answer_with(words, message, request, site_of(context))

    return app


def request_in(message: Message) -> Request:
    """Return the question of a `query.answer`; InputError if it makes no sense."""
    records = message.content.config_records
    return Request.from_fields(records["query"], records.get("context", {}))


def drawn(
    shards: Shards | None, request: Request, site: int, *, simulated: bool, private: bool
) -> tuple[types.Words, Exception | None]:
    """Return the contribution, (length,), and an error of its rows, hidden if private.

    A hostile question may fail on some rows and not on others. Whether it did would be an exact
    fact about them, and so the server is told of no failure that a client without rows does not
    have. What failed is returned, for the client's own log.
    """

    def of(rows: Shards | None) -> types.Words:
        return np.asarray(contribute(rows, request, np.array([site]), simulated=simulated)[0])

    try:
        return of(shards), None
    except OverLimit:
        raise  # the server sees how long an answer takes in any case
    except Exception as e:
        if not private or shards is None:
            raise
        return of(shards.keep(np.zeros(0, np.int64))), e


def asks_for_masks(message: Message) -> bool:
    """Return whether the server names a cohort, whose members mask their answers."""
    return "masking" in message.content.config_records


def answer_with(words: types.Words, message: Message, request: Request, site: int) -> Message:
    """Return the reply to a `query.answer`: a contribution, masked if there is a cohort.

    Parameters
    ----------
    words
        (length,)
    site
        number of the client in the cohort; of no use without one
    """
    if asks_for_masks(message):
        from fedcal.secure_aggregation.masking import mask  # in simulations alone

        masking = message.content.config_records["masking"]
        cohort: list[int] = masking["cohort"]  # type: ignore[assignment]
        seed = int(masking["seed"])  # type: ignore[arg-type]
        words = words + mask(site, cohort, seed, request.round, len(words))
    record = ArrayRecord({"words": Array(words)})
    return Message(RecordDict({"answer": record}), reply_to=message)


app = client_app(
    lambda context: site_rows(context.run_config, context.node_config),
    simulated=True,
    dealt_to=lambda context: dealt_to(context.run_config, context.node_config),
)
"""What Flower runs on each node of a simulation: `fedcal.clients.client_app:app`."""
