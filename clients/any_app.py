"""A client of somebody else's Flower app answers fedcal's questions, by the model just trained.

The server sends the model once, with the question who a client is. The client's own code gives the
model's scores of the client's own rows; they stay in the client's context, and every later question
is answered from them. Coins and noise come from the operating system.

Nothing of a real site is here: no guard that checks a question against a plan, no policy, no
ledger. A server can ask what it likes, as often as it likes: the guarantee is its promise.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedcal.clients.client_app import answer_with, drawn, request_in
from fedcal.core.errors import FedcalError, InputError
from fedcal.core.optional import need
from fedcal.core.shards import Shards
from fedcal.datasets import from_arrays
from fedcal.datasets.model_scores import moved_to, outputs_of
from fedcal.partition import deal
from fedcal.privacy.agreement import context_of

_MODEL = "model"  # record of `query.who` (`fedcal.strategies.server.who.MODEL`)
_ROWS, _INPUT = "fedcal-rows", "fedcal-input"
_LABELS = ("labels", "label", "target", "y")

Scores = Callable[[ArrayRecord, Context], Any]
"""(the model's arrays, the node's context) -> (logits, labels), or the keys of a data file."""

log = logging.getLogger("fedcal")


def add_answers(
    app: ClientApp,
    model: Callable[[], Any] | None = None,
    rows: Callable[[Context], Iterable[Any]] | None = None,
    *,
    scores: Scores | None = None,
) -> None:
    """Let a Flower ClientApp answer fedcal's questions, beside what it does already.

    Parameters
    ----------
    app
        gets the query actions `who` and `answer`
    model
        makes the `torch.nn.Module` that was trained, such as its class; the arrays that the server
        sends are loaded into it
    rows
        of a node's context the batches of its own labelled rows, such as a DataLoader. They should
        be rows that the model was not trained on. A batch is (inputs, labels), or a mapping with
        `labels` (or `label`): its one other tensor is given to the model as it is, several by their
        names, as to a transformer. An output with `logits` stands for these
    scores
        instead of both, for any other model: (arrays, context) -> (logits (n, c), labels (n,)), or
        a mapping with the keys of a data file: `logits` or `probs`, `labels`, `subject`, `group`

    Raises
    ------
    InputError
        If neither or both are given, or a module instead of what makes it.
    """
    if hasattr(model, "state_dict") and not isinstance(model, type):
        raise InputError("add_answers takes what makes the model, such as its class, not a module")
    if (scores is None) == (model is None) or (model is None) != (rows is None):
        raise InputError("add_answers(app, ...) takes model and rows, or scores")

    def by_torch(arrays: ArrayRecord, context: Context) -> Any:
        made = model() if model is not None else None
        made.load_state_dict(arrays.to_torch_state_dict())  # type: ignore[union-attr]
        return logits_of(made, rows(context) if rows is not None else ())

    made = by_torch if scores is None else scores

    @app.query("who")
    def who(message: Message, context: Context) -> Message:
        shards = _told("say who it is", lambda: _score(made, message, context))
        record = ConfigRecord({"classes": shards.classes, "input": shards.input})
        if (site := _number(context)) is not None:
            record["site"] = site
        return Message(RecordDict({"who": record}), reply_to=message)

    @app.query("answer")
    def answer(message: Message, context: Context) -> Message:
        request = request_in(message)
        private, number = context_of(request).epsilon < math.inf, _number(context)
        if number is None and request.query.by_site:
            raise InputError(f"{request.query.kind} needs nodes with a partition-id")

        def draw() -> Message:
            words, failed = drawn(
                _kept(context), request, number or 0, simulated=False, private=private
            )
            if failed is not None:
                log.warning(
                    "the question fails on these rows, none are counted: %s", type(failed).__name__
                )
            return answer_with(words, message, request, number or 0)

        reply: Message = _told("answer", draw)
        return reply


def logits_of(model: Any, batches: Iterable[Any]) -> dict[str, Any]:
    """Logits (n, c) of a `torch.nn.Module` and the labels, of batches as `add_answers` reads them.

    Raises
    ------
    InputError
        If a batch has no labels, or the outputs are no logits.
    """
    torch, labels = need("torch", "export", "answering by a PyTorch model"), list[Any]()

    def read(like: Any) -> Iterator[tuple[int, Any]]:
        for batch in batches:
            inputs, truth = _parts(batch, torch.is_tensor)
            moved = {key: moved_to(like, value) for key, value in inputs.items()}
            labels.append(np.asarray(truth))
            yield len(truth), moved if len(moved) > 1 else next(iter(moved.values()))

    logits = outputs_of(model, read)
    if not labels:
        raise InputError("there are no batches of labelled rows")
    return {"logits": logits, "labels": np.concatenate(labels)}


def _parts(batch: Any, is_tensor: Callable[[Any], bool]) -> tuple[dict[str, Any], Any]:
    """The inputs of a batch by name, and its labels."""
    if not isinstance(batch, Mapping):
        inputs, truth = batch
        return {"inputs": inputs}, truth
    named = next((key for key in _LABELS if key in batch), None)
    if named is None:
        raise InputError(
            f"a batch has no labels: its keys are {', '.join(map(str, batch))}; "
            f"one of {', '.join(_LABELS)} must be there"
        )
    return {k: v for k, v in batch.items() if k != named and is_tensor(v)}, batch[named]


def _score(scores: Scores, message: Message, context: Context) -> Shards:
    """Score the node's own rows by the model of the message, and keep that in its context."""
    if _MODEL not in message.content.array_records:
        raise InputError("the server sent no model: give start(...) the arrays of the trained one")
    found = scores(message.content.array_records[_MODEL], context)
    if not isinstance(found, Mapping):
        found = dict(zip(("logits", "labels"), found, strict=True))
    if np.asarray(found.get("labels")).dtype.kind not in "iufb":
        raise InputError(
            "labels must be the numbers of the columns of scores, so that all clients mean the "
            "same; AfterTraining(class_names=...) names them"
        )
    shards = deal(from_arrays(**found), "iid", 1, 0)
    arrays = {name: getattr(shards, name) for name in ("logits", "labels", "subjects", "groups")}
    context.state[_ROWS] = ArrayRecord(
        {name: Array(np.asarray(value)) for name, value in arrays.items() if value is not None}
    )
    context.state[_INPUT] = ConfigRecord({"input": shards.input, "names": list(shards.group_names)})
    return shards


def _kept(context: Context) -> Shards:
    """The rows that `_score` kept."""
    if _ROWS not in context.state.array_records:
        raise InputError("this client was not asked who it is, so that it has no rows")
    arrays = {k: v.numpy() for k, v in context.state.array_records[_ROWS].items()}
    known: dict[str, Any] = dict(context.state.config_records[_INPUT])
    ends = np.array([0, len(arrays["labels"])])
    return Shards(**arrays, offsets=ends, input=known["input"], group_names=tuple(known["names"]))


def _number(context: Context) -> int | None:
    """The node's place among those of a simulation, or as its configuration says it."""
    known = context.node_config.get("partition-id")
    return None if known is None else int(known)


def _told(what: str, do: Callable[[], Any]) -> Any:
    """Keep the text of an error, which may tell of rows, from the server: it gets the class."""
    try:
        return do()
    except Exception as e:
        log.exception("cannot %s", what)
        kind = type(e).__name__ if isinstance(e, FedcalError) else "an error of the app's own code"
        raise RuntimeError(f"{kind}; the client's own log says more") from None
