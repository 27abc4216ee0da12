"""Replies of Flower clients to a question: a contribution, hidden errors, masks of a simulation."""

import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict

from fedcal.clients.answers import contribute
from fedcal.clients.site.process.limits import OverLimit
from fedcal.core import numerics
from fedcal.core.shards import Shards
from fedcal.privacy.query import Request


def drawn(
    shards: Shards | None, request: Request, site: int, *, simulated: bool, private: bool
) -> tuple[numerics.Words, Exception | None]:
    """Return the contribution, (length,), and an error of its rows, hidden if private.

    A hostile question may fail on some rows and not on others. Whether it did would be an exact
    fact about them, and so the server hears of no failure that a client without rows does not
    have. What failed is returned, for the client's own log.
    """

    def of(rows: Shards | None) -> numerics.Words:
        return np.asarray(contribute(rows, request, np.array([site]), simulated=simulated)[0])

    try:
        return of(shards), None
    except OverLimit:
        raise  # the server sees how long an answer takes in any case
    except Exception as e:
        if not private or shards is None:
            raise
        return of(shards.keep(np.zeros(0, np.int64))), e


def answer_with(words: numerics.Words, message: Message, request: Request, site: int) -> Message:
    """Return the reply to a `query.answer`: a contribution, masked if the server says so.

    Parameters
    ----------
    words
        (length,)
    site
        number of the client; of no use without masks
    """
    if (masking := message.content.config_records.get("masking")) is not None:
        from fedcal.secure_aggregation.masking import mask  # in simulations alone

        seed = int(masking["seed"])  # type: ignore[arg-type]
        words = words + mask(site, seed, request.round, len(words))
    return Message(RecordDict({"answer": ArrayRecord({"words": Array(words)})}), reply_to=message)
