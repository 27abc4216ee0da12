"""A client of somebody else's Flower app answers fedcal's questions, by the model just trained.

The server sends the model once, with the question who a client is. The client's own code gives the
model's scores of the client's own rows; they stay in the client's context, and every later question
is answered from them. Coins and noise come from the operating system. Of a private run a row
whose score or label is none is left out by itself, and where the code fails, the answer is as
without rows; an exact run reports both.

Nothing of a real site is here: no guard that checks a question against a plan, no policy, no
ledger. A server can ask what it likes, as often as it likes: the guarantee is its promise.
"""

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedcal.clients.client_app import request_in
from fedcal.clients.replies import answer_with, drawn
from fedcal.core.checks import InputError, read
from fedcal.core.imports import need
from fedcal.core.numerics import Kind
from fedcal.core.scores import (
    LARGEST_LOGIT,
    MISSING,
    RANGE_TOLERANCE,
    SUM_TOLERANCE,
    as_array,
    loose_ids,
    numbers,
)
from fedcal.core.scores import in_class_order as ordered
from fedcal.core.shards import Shards
from fedcal.datasets import IDS, from_arrays, model_scores
from fedcal.partition import deal

_MODEL = "model"  # record of `query.who` (`fedcal.strategies.server.participation.MODEL`)
_ROWS, _INPUT = "fedcal-rows", "fedcal-input"
_LABELS = ("labels", "label", "target", "y")

_LACKING = "not all have finite scores, the number of a column as label (from 0), and an id, if any"

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
        made: Any = model and model()
        made.load_state_dict(arrays.to_torch_state_dict())
        return logits_of(made, rows(context) if rows else ())

    @app.query("who")
    def who(message: Message, context: Context) -> Message:
        record = ConfigRecord()
        try:  # it says no number: the server gives each node one, and need not believe any
            shards = _score(scores or by_torch, message, context)
            record["classes"], record["input"] = shards.classes, shards.input
        except Exception:
            log.exception("no row of this client can be scored")
        return Message(RecordDict({"who": record}), reply_to=message)

    @app.query("answer")
    def answer(message: Message, context: Context) -> Message:
        request = request_in(message)
        private = read(message.content.config_records["context"], "private", bool)
        shards = _kept(context, private)
        try:
            words, failed = drawn(shards, request, 0, simulated=False, private=private)
        except Exception as e:  # its text may tell of rows
            log.exception("cannot answer")
            raise RuntimeError(f"{type(e).__name__}; see the client's own log") from None
        if failed is not None:
            log.warning("the question fails on these rows, none are counted: %r", type(failed))
        return answer_with(words, message, request, 0)


def logits_of(model: Any, batches: Iterable[Any]) -> dict[str, Any]:
    """Logits (n, c) of a `torch.nn.Module` and the labels, of batches as `add_answers` reads them.

    Raises InputError if a batch has no labels, or the outputs are no logits.
    """
    torch, labels = need("torch", "export", "answering by a PyTorch model"), list[Any]()

    def scored(like: Any) -> Iterator[tuple[int, Any]]:
        for batch in batches:
            inputs, truth = _parts(batch, torch.is_tensor)
            moved = {key: model_scores.moved_to(like, value) for key, value in inputs.items()}
            labels.append(as_array("labels", truth))
            yield len(truth), moved if len(moved) > 1 else next(iter(moved.values()))

    logits = model_scores.outputs_of(model, scored)
    if not labels:
        raise InputError("no batches of labelled rows were passed")
    return {"logits": logits, "labels": np.concatenate(labels)}


def _parts(batch: Any, is_tensor: Callable[[Any], bool]) -> tuple[dict[str, Any], Any]:
    """Return the inputs of a batch by name, and its labels."""
    if not isinstance(batch, Mapping):
        inputs, truth = batch
        return {"inputs": inputs}, truth
    named = next((key for key in _LABELS if key in batch), None)
    if named is None:
        raise InputError(f"a batch has no labels: its keys are {', '.join(map(str, batch))}")
    return {k: v for k, v in batch.items() if k != named and is_tensor(v)}, batch[named]


def _score(scores: Scores, message: Message, context: Context) -> Shards:
    """Score the node's own rows by the model of the message, and keep that in its context."""
    context.state.pop(_ROWS, None)  # of an earlier model
    if _MODEL not in message.content.array_records:
        raise InputError("the server sent no model: give start(...) the arrays of the trained one")
    scored = scores(message.content.array_records[_MODEL], context)
    if not isinstance(scored, Mapping):
        scored = dict(zip(("logits", "labels"), scored, strict=True))
    labels = np.asarray(scored.get("labels"))
    if labels.dtype == object and labels.ndim:  # None is no label, as nan is
        labels = np.array([math.nan if y is None else y for y in labels.ravel().tolist()])
        scored = {**scored, "labels": labels}
    if labels.dtype.kind not in "iufb":
        so = "so that all clients mean the same; AfterTraining(class_names=...) names them"
        raise InputError(f"labels must be the numbers of the columns of scores, {so}")
    shards = deal(from_arrays(**_usable(scored)), "iid", 1, 0)
    arrays = {name: getattr(shards, name) for name in ("logits", "labels", "subjects", "groups")}
    arrays_kept = {name: Array(value) for name, value in arrays.items() if value is not None}
    context.state[_ROWS] = ArrayRecord(arrays_kept)
    lost = np.size(scored["labels"]) - shards.size
    about: dict[str, Any] = {"input": shards.input, "names": list(shards.group_names), "lost": lost}
    context.state[_INPUT] = ConfigRecord(about)
    return shards


def _usable(scored: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the rows that `from_arrays` would refuse; no row decides over another."""
    kind: Kind = "logits" if "logits" in scored else "probs"
    if scored.get("class_names") is not None:
        raise InputError("class_names: labels must be the numbers of the columns of scores")
    x = numbers(kind, ordered(kind, scored[kind], ())).astype(np.float64)
    y = numbers("labels", scored["labels"])
    ids = {key: loose_ids(key, scored[key]) for key in IDS[1:] if scored.get(key) is not None}
    if kind == "probs" and x.size == len(x):  # of class 1
        x = np.stack([1 - x.ravel(), x.ravel()], axis=1)
    middle, reach = (0.0, LARGEST_LOGIT) if kind == "logits" else (0.5, 0.5 + RANGE_TOLERANCE)
    with np.errstate(invalid="ignore"):
        good = (np.abs(x - middle) <= reach).all(axis=1)
        good &= np.isin(y.reshape(len(x)), np.arange(x.shape[1]))
        if kind == "probs":
            good &= np.abs(x.sum(axis=1) - 1) <= SUM_TOLERANCE
    for names in ids.values():
        good &= ~np.isin(names, MISSING)
    if not good.all():
        log.warning("%d of %d rows are left out: %s", (~good).sum(), len(x), _LACKING)
    rows = {key: column[good] for key, column in {**ids, "labels": y}.items()}
    return {key: value for key, value in scored.items() if key not in IDS} | rows | {kind: x[good]}


def _kept(context: Context, private: bool) -> Shards | None:
    """Return the rows that `_score` kept; None if it failed.

    Raises InputError, in an exact run alone, if it failed or left rows out: of a private run the
    server must not learn that.
    """
    if _ROWS not in context.state.array_records:
        if private:
            return None
        raise InputError("no row of this client can be scored")
    arrays: dict[str, Any] = {k: v.numpy() for k, v in context.state.array_records[_ROWS].items()}
    known: dict[str, Any] = dict(context.state.config_records[_INPUT])
    if known["lost"] and not private:
        raise InputError(f"{_LACKING}; see the client's own log")
    ends = np.array([0, len(arrays["labels"])])
    return Shards(**arrays, offsets=ends, input=known["input"], group_names=tuple(known["names"]))
