"""Clients of somebody else's Flower app: their answers, and what they keep to themselves."""

import logging

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Context
from flwr.clientapp import ClientApp

from fedcal import (
    AfterTraining,
    InProcessGrid,
    InputError,
    RoundFailed,
    datasets,
    score_batches,
    with_answers,
)
from fedcal.partition import deal

DATA = datasets.load("resnet110-cifar10").split(0)
SHARDS = deal(DATA, "iid", 4, 0)
MODEL = ArrayRecord({"w": Array(np.array([2.0]))})


def scaled(arrays: ArrayRecord, context: Context):
    """A model that doubles what the files say."""
    rows = SHARDS.block(
        int(context.node_config["partition-id"]), 1 + int(context.node_config["partition-id"])
    )
    return arrays["w"].numpy()[0] * rows.logits, rows.labels


def grid_of(scores, **changed):
    return InProcessGrid(with_answers(ClientApp(), scores=scores), range(1, 5))


def test_probabilities_columns_and_test_rows():
    def probs(arrays, context):
        logits, labels = scaled(arrays, context)
        odds = np.exp(logits - logits.max(1, keepdims=True))
        return {
            "probs": odds / odds.sum(1, keepdims=True),
            "labels": labels,
            "subject": np.arange(len(labels)),
        }

    test = {"logits": 2 * DATA.test_logits, "labels": DATA.test_labels}
    after = AfterTraining("fednewton", epsilon=8.0, unit="subject", test=test)
    result = after.start(grid_of(probs), MODEL)
    assert result.artifact.input == "probs"
    assert result.after["ece"] < result.before["ece"]
    assert not any("deals rows, not subjects" in line for line in result.privacy["more"])


class Outputs:
    def __init__(self, logits):
        self.logits = logits


class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(2, 3)

    def forward(self, x=None, first=None, second=None):
        return super().forward(x) if x is not None else Outputs(super().forward(first + second))


ROWS, LABELS = torch.arange(8.0).reshape(4, 2), torch.tensor([0, 1, 2, 1])


@pytest.mark.parametrize(
    "batch",
    [
        (ROWS, LABELS),
        {"img": ROWS, "label": LABELS, "file": ["a", "b", "c", "d"]},
        {"first": ROWS / 2, "second": ROWS / 2, "labels": LABELS},
    ],
)
def test_batches_are_read_as_quickstarts_make_them(batch):
    net = Net().train()
    found = score_batches(net, [batch, batch])
    expected = torch.nn.functional.linear(ROWS, net.weight, net.bias).detach().numpy()
    np.testing.assert_allclose(found["logits"], np.tile(expected, (2, 1)), rtol=1e-6)
    assert found["labels"].tolist() == 2 * LABELS.tolist()
    assert net.training


def test_noise_is_the_client_s_own_whatever_seed_the_server_sends(monkeypatch):
    sent = []
    grid = grid_of(scaled)
    deliver = grid._deliver

    def seen(message):
        reply = deliver(message)
        if message.metadata.message_type == "query.answer":
            again = deliver(message)
            sent.append([r.content["answer"]["words"].numpy() for r in (reply, again)])
        return reply

    monkeypatch.setattr(grid, "_deliver", seen)
    AfterTraining("fedbbq", epsilon=5.0, trust="local", seed=3).start(grid, MODEL)
    assert len(sent) == 4
    assert not any((one == two).all() for one, two in sent)


def test_the_server_learns_no_text_of_an_error(caplog):
    def fails(arrays, context):
        raise ValueError("row 17 is of Ms Meyer")

    with caplog.at_level(logging.INFO, "flwr"), pytest.raises(RoundFailed) as failed:
        AfterTraining("fednewton").start(grid_of(fails), MODEL)
    assert "Meyer" not in str(failed.value)
    lines = [r.getMessage() for r in caplog.records if r.name == "flwr"]
    assert lines
    assert not [line for line in lines if "Meyer" in line]


def a_row(logits, labels):
    logits[0, 0], labels[1] = np.nan, -1
    return logits, labels


def rows_without_ids(logits, labels):
    """Ids of any row: missing, with a control character, or like another one."""
    ids = np.array([f"p{k}" for k in range(len(labels))], object)
    ids[:6] = [None, np.nan, "NA", "", "\x07", "p\u0430"]
    ids[-1] = "pa"
    return {"logits": logits, "labels": labels, "subject": ids, "group": ids}


def no_label(logits, labels):
    return logits, [None, None, None, *labels[3:].tolist()]


def no_rows(logits, labels):
    return logits[:0], labels[:0]


def failing(logits, labels):
    raise ValueError("row 17 is of Ms Meyer")


@pytest.mark.parametrize(
    ("spoilt", "lost"),
    [(a_row, 2), (no_label, 3), (rows_without_ids, 5), (no_rows, 1250), (failing, 1250)],
)
def test_no_row_decides_whether_a_client_answers(spoilt, lost):
    def one_of_four(arrays, context):
        found = [np.array(x) for x in scaled(arrays, context)]
        return spoilt(*found) if context.node_config["partition-id"] == 2 else found

    grid = grid_of(one_of_four)
    result = AfterTraining("evaluate", epsilon=8.0, unit="example").start(grid, MODEL)
    assert result.sites == {"enrolled": 4, "answered": 4, "absent": [], "missed": {}}
    assert result.evaluated["rows"]["value"] == pytest.approx(5000 - lost, abs=40)


def shifted(logits, labels):
    return logits, labels + 1


@pytest.mark.parametrize("spoilt", [a_row, shifted])
def test_an_exact_run_reports_rows_without_a_label(spoilt, caplog):
    def everywhere(arrays, context):
        return spoilt(*[np.array(x) for x in scaled(arrays, context)])

    reason = "not all have finite scores, the number of a column as label"
    with pytest.raises(RoundFailed, match=f"^no client can score .*partition 3: {reason}.*$"):
        AfterTraining("fednewton").start(grid_of(everywhere), MODEL)
    private = AfterTraining("fednewton", epsilon=8.0, unit="example")
    assert private.start(grid_of(everywhere), MODEL).sites["answered"] == 4


def test_one_client_does_not_say_how_many_classes_the_others_have():
    def lies(arrays, context):
        logits, labels = scaled(arrays, context)
        first = context.node_config["partition-id"] == 0
        return (logits[:, :2], labels % 2) if first else (logits, labels)

    with pytest.raises(InputError, match=r"must be .* of 2 classes., got .logits of 10 classes"):
        AfterTraining("evaluate", epsilon=8.0, unit="example").start(grid_of(lies), MODEL)
