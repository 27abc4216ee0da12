"""A client of somebody else's Flower app answers fedcal's questions, by the model just trained.

The server sends the model once, with the question who a client is. The client's own code gives the
model's scores of the client's own rows; they stay in the client's context, and every later question
is answered from them. Coins and noise come from the operating system. Of a private run a row
whose score or label is none is left out by itself, and where the code fails, the answer is as
without rows; an exact run goes on without such a client. Of an error the server gets the kind.

Nothing of a real site is here: no guard that checks a question against a plan, no policy, no
ledger. A server can ask what it likes, as often as it likes: the guarantee is its promise.
"""

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import signature
from typing import Any, TypeAlias

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedcal.clients.client_app import request_in
from fedcal.clients.replies import answer_with, drawn
from fedcal.core import flower_internals
from fedcal.core import scores as rules
from fedcal.core.checks import NO_ROWS, FormError, InputError, read
from fedcal.core.imports import need
from fedcal.core.naming import value_of
from fedcal.core.numerics import Floats, Kind, logits_of
from fedcal.core.shards import Shards
from fedcal.datasets import IDS, model_scores, plausible_rows

_MODEL = "model"  # record of `query.who` (`fedcal.strategies.server.participation.MODEL`)
_ROWS, _INPUT = "fedcal-rows", "fedcal-input"
_LABELS = ("labels", "label", "target", "y")

_USABLE = "finite scores, the number of a column as label (from 0), and an id, if any"

Scores = Callable[[ArrayRecord, Context], Any]
"""(the model's arrays, the node's context) -> (logits, labels), or the keys of a data file."""

Key: TypeAlias = str | int
"""Name of a tensor in a batch, or its place in a sequence."""

Answer: TypeAlias = Callable[[Message, Context], Message]

log = logging.getLogger("fedcal")


class AnsweringApp(ClientApp):
    """Somebody's ClientApp, whose own functions and mods see none of fedcal's messages."""

    def __init__(self, app: ClientApp, answers: Mapping[str, Answer]) -> None:
        self.__dict__ = vars(app)  # what is registered later with one of them, both have
        self.answers = answers

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer a message of fedcal's; the app handles any other."""
        if (kind := message.metadata.message_type) not in self.answers:
            return super().__call__(message, context)
        with flower_internals.lifespan_of(self, context):
            return self.answers[kind](message, context)


def with_answers(
    app: ClientApp,
    model: Callable[..., Any] | None = None,
    rows: Callable[[Context], Iterable[Any]] | None = None,
    *,
    inputs: Key | Sequence[Key] | None = None,
    target: Key | None = None,
    scores: Scores | None = None,
) -> AnsweringApp:
    """Return a Flower ClientApp that answers fedcal's questions and leaves all else to `app`.

    Parameters
    ----------
    app
        of functions (`@app.train()`) or of a `client_fn`
    model
        makes the `torch.nn.Module` that was trained: its class, or a function of the context. The
        arrays that the server sends are loaded into it, by name or, of a list, in order
    rows
        of a node's context the batches of its own labelled rows, such as a DataLoader. They should
        be rows that the model was not trained on
    inputs, target
        where a batch has the model's inputs and the labels, see `score_batches`
    scores
        instead, for any other model: (arrays, context) -> (logits (n, c), labels (n,)), or
        a mapping with the keys of a data file: `logits` or `probs`, `labels`, `subject`, `group`

    Raises
    ------
    InputError
        If neither or both are given, or a module instead of what makes it.
    """
    if not isinstance(app, ClientApp):
        raise InputError(f"with_answers takes a ClientApp, not a {type(app).__name__}")
    if hasattr(model, "state_dict") and not isinstance(model, type):
        raise InputError("with_answers takes what makes the model, such as its class, not a module")
    if rows is not None and not callable(rows):
        raise InputError("with_answers takes rows as a function of the context, not its batches")
    if (scores is None) == (model is None) or (model is None) != (rows is None):
        raise InputError("with_answers(app, ...) takes model and rows, or scores")
    named = {} if isinstance(model, type) or model is None else signature(model).parameters
    required = (p for p in named.values() if p.kind is p.POSITIONAL_OR_KEYWORD)
    of_context = any(p.default is p.empty for p in required)

    def by_torch(arrays: ArrayRecord, context: Context) -> Any:
        made: Any = model and (model(context) if of_context else model())
        state, names = dict(arrays.to_torch_state_dict()), made.state_dict()
        if list(state) == [str(k) for k in range(len(names))]:  # a list, as NumPyClient has it
            state = dict(zip(names, state.values(), strict=True))
        try:
            made.load_state_dict(state)
        except RuntimeError:
            fit = f"the {len(names)} of the model's state_dict(), buffers among them"
            raise FormError(f"the server's {len(state)} arrays do not fit {fit}") from None
        return score_batches(made, rows(context) if rows else (), inputs=inputs, target=target)

    def who(message: Message, context: Context) -> Message:
        record = ConfigRecord()
        if isinstance(partition := context.node_config.get("partition-id"), int):
            record["partition"] = partition  # a name: the server numbers its nodes itself
        try:
            shards = _score(scores or by_torch, message, context)
            record["classes"], record["input"] = shards.classes, shards.input
        except Exception as e:
            known = isinstance(e, FormError)
            log.warning("none of this client's rows count: %s", e, exc_info=not known)
            record["error"] = str(e) if known else type(e).__name__
        return Message(RecordDict({"who": record}), reply_to=message)

    def answer(message: Message, context: Context) -> Message:
        request, private = request_in(message), _private(message)
        shards = _kept(context)
        if shards is None and not private:
            raise InputError("no row of this client can be scored")
        try:
            words, failed = drawn(shards, request, 0, simulated=False, private=private)
        except Exception as e:  # its text may tell of rows
            log.exception("cannot answer")
            raise RuntimeError(f"{type(e).__name__}; see the client's own log") from None
        if failed is not None:
            log.warning("the question fails on these rows, none are counted: %r", type(failed))
        return answer_with(words, message, request, 0)

    return AnsweringApp(app, {"query.who": who, "query.answer": answer})


def add_answers(app: ClientApp, *arguments: Any, **options: Any) -> None:
    """Register the answers of `with_answers`, its successor, as functions of the app."""
    use = "add_answers goes in the next version: write app = with_answers(app, ...)"
    warnings.warn(use, DeprecationWarning, stacklevel=2)
    for kind, answer in with_answers(ClientApp(), *arguments, **options).answers.items():
        app.query(kind.removeprefix("query."))(answer)


def score_batches(
    model: Any,
    batches: Iterable[Any],
    *,
    inputs: Key | Sequence[Key] | None = None,
    target: Key | None = None,
) -> dict[str, Any]:
    """Return the scores of a `torch.nn.Module`, and the labels, of batches of labelled rows.

    Parameters
    ----------
    model
        its outputs, or their `logits`, are logits (n, c), or of a softmax head probabilities; one
        output for each row is that of class 1 of two
    batches
        (inputs, labels), or mappings with `labels` (or `label`, `target`, `y`). Of one tensor
        besides, it is the model's input; of several those are that its `forward` names
    inputs
        names, or places, of the model's inputs in a batch, where that is not so
    target
        name, or place, of the labels

    Returns
    -------
    dict
        `logits` or `probs`, (n, c), and `labels`, (n,)

    Raises
    ------
    FormError
        If a batch has no labels or no inputs, or the outputs are no scores.
    """
    torch, labels = need("torch", "export", "answering by a PyTorch model"), list[Any]()
    names = (inputs,) if isinstance(inputs, Key) else tuple(inputs or ())

    def inputs_of_batches() -> Iterator[model_scores.Columns]:
        for batch in batches:
            columns, truth = _parts(batch, names, target, model, torch)
            labels.append(rules.as_array("labels", truth))
            if not labels[-1].ndim:
                raise FormError("rows must give batches, as a DataLoader, not single rows")
            yield columns

    if not isinstance(batches, Iterable):
        raise FormError(f"rows must give batches, as a DataLoader, not {type(batches).__name__}")
    kind, scores = model_scores.outputs_of(model, inputs_of_batches())
    if not labels:
        raise FormError(NO_ROWS)
    return {kind: scores, "labels": np.concatenate(labels)}


def _parts(
    batch: Any, inputs: Sequence[Key], target: Key | None, model: Any, torch: Any
) -> tuple[dict[Any, Any], Any]:
    """Return the inputs of a batch by the model's names, or by place from 0, and its labels."""
    parts = dict(batch) if isinstance(batch, Mapping) else dict(enumerate(batch))
    if isinstance(parts.get(0), Mapping):
        parts = {**parts.pop(0), **parts}
    if target is None:
        pair = 1 in parts and 2 not in parts
        target = 1 if pair else next((key for key in _LABELS if key in parts), None)
    found = {key: parts[key] for key in inputs or parts if torch.is_tensor(parts.get(key))}
    found.pop(target, None)
    names = signature(model.forward).parameters
    free = len(found) > 1 and any(p.kind is p.VAR_KEYWORD for p in names.values())
    named = {key: x for key, x in found.items() if key in names or (free and isinstance(key, str))}
    if len(named) < len(found) and (inputs or len(found) == 1):
        named = dict(enumerate(found.values()))
    if target not in parts or not named:
        keys = ", ".join(key for key in parts if isinstance(key, str))  # numbers may be of rows
        has = f"a batch, {type(batch).__name__}, has {keys or 'no names'}"
        raise FormError(f"{has}: name the labels by target=, what the model takes by inputs=")
    return named, parts[target]


def _score(scores: Scores, message: Message, context: Context) -> Shards:
    """Score the node's own rows by the model of the message, and keep that in its context.

    Raises FormError in an exact run, and in no private one, if some rows cannot be used.
    """
    context.state.pop(_ROWS, None)  # of an earlier model
    if _MODEL not in message.content.array_records:
        raise FormError("the server sent no model: give start(...) the arrays of the trained one")
    scored = scores(message.content.array_records[_MODEL], context)
    if not isinstance(scored, Mapping):
        scored = dict(zip(("logits", "labels"), scored, strict=True))
    shards = _usable(scored, _private(message))
    if shards.labels.min() and plausible_rows.counted_from_1(shards.logits, shards.labels):
        # a fact about rows, for this log alone
        log.warning("the scores name each class one lower than its label: labels count from 0")
    arrays = {name: getattr(shards, name) for name in ("logits", "labels", "subjects", "groups")}
    arrays_kept = {name: Array(value) for name, value in arrays.items() if value is not None}
    context.state[_ROWS] = ArrayRecord(arrays_kept)
    about: dict[str, Any] = {"input": shards.input, "names": list(shards.group_names)}
    context.state[_INPUT] = ConfigRecord(about)
    return shards


def _usable(scored: Mapping[str, Any], private: bool) -> Shards:
    """Return the rows without those that no reader takes; no row decides over another.

    An exact run refuses them, and its message says how many.
    """
    kind: Kind = "logits" if "logits" in scored else "probs"
    if scored.get("class_names") is not None:
        raise FormError("class_names: labels must be the numbers of the columns of scores")
    x = _numbers(kind, rules.in_class_order(kind, scored[kind], ()))
    y = _numbers("labels", scored.get("labels"))
    ids = {key: rules.loose_ids(key, scored[key]) for key in IDS[1:] if scored.get(key) is not None}
    if not len(x):
        raise FormError(NO_ROWS)
    if y.size != len(x):  # not how many they are
        raise FormError("labels must be one column number for each row of scores (not one-hot)")
    if x.size == len(x):  # of class 1
        x = np.stack([1 - x.ravel() if kind == "probs" else 0 * x.ravel(), x.ravel()], axis=1)
    middle = 0.0 if kind == "logits" else 0.5
    reach = rules.LARGEST_LOGIT if kind == "logits" else 0.5 + rules.RANGE_TOLERANCE
    with np.errstate(invalid="ignore"):
        finite = (np.abs(x - middle) <= reach).all(axis=1)
        sums_to_1 = np.abs(x.sum(axis=1) - 1) <= rules.SUM_TOLERANCE
    named = f"(largest {float(np.fmax.reduce(y, None)):g}; class_names=... has names)"
    labels = f"labels are not 0..{x.shape[1] - 1} {named}"
    tests: dict[str, Any] = {labels: np.isin(y.reshape(len(x)), np.arange(x.shape[1]))}
    tests[f"rows have no valid {kind}"] = finite if kind == "logits" else finite & sums_to_1
    tests |= {f"rows have no {key}": ~np.isin(names, rules.MISSING) for key, names in ids.items()}
    good = np.all([*tests.values()], axis=0)
    faults = [f"{(~ok).sum()} of {len(x)} {what}" for what, ok in tests.items() if not ok.all()]
    near = rules.ROUNDED if good.sum() >= rules.SURE else rules.SUM_TOLERANCE
    if kind == "logits" and any(rules.could_be_probs(x[good], near, 1.0, u) for u in (1, 100)):
        faults.append("these logits are probabilities (or percent): the key probs is for those")
    if (faults and not private) or not good.any():
        raise FormError(f"no row has {_USABLE}" if private else "; ".join(faults))
    if faults:
        log.warning("rows are left out, or doubtful: %s", "; ".join(faults))
    of = {key: np.unique(names[good], return_inverse=True) for key, names in ids.items()}
    (_, subjects), (names, groups) = (of.get(key, ((), None)) for key in IDS[1:])
    rows = logits_of(kind, np.ascontiguousarray(x[good])), y.ravel()[good].astype(np.int64)
    return Shards(*rows, np.array([0, good.sum()]), kind, subjects, groups, tuple(map(str, names)))


def _numbers(name: str, value: Any) -> Floats:
    """Return numbers; an entry that is none, such as None, is nan."""
    array = np.asarray(rules.without_gradient(value, name))
    if array.dtype.kind in "OU":
        known = [value_of(str(x)[:99]) for x in array.ravel().tolist()]
        array = np.array(known, np.float64).reshape(array.shape)
    return rules.numbers(name, array).astype(np.float64)


def _kept(context: Context) -> Shards | None:
    """Return the rows that `_score` kept; None if it failed."""
    if _ROWS not in context.state.array_records:
        return None
    arrays: dict[str, Any] = {k: v.numpy() for k, v in context.state.array_records[_ROWS].items()}
    known: dict[str, Any] = dict(context.state.config_records[_INPUT])
    ends = np.array([0, len(arrays["labels"])])
    return Shards(**arrays, offsets=ends, input=known["input"], group_names=tuple(known["names"]))


def _private(message: Message) -> bool:
    return read(message.content.config_records["context"], "private", bool)
