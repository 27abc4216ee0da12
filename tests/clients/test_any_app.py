"""Clients of somebody else's Flower app: their answers, and what they keep to themselves."""

import logging

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedcal import AfterTraining, InProcessGrid, InputError, RoundFailed, datasets
from fedcal.clients.any_app import add_answers, score_batches, with_answers
from fedcal.core.checks import FormError
from fedcal.partition import deal

DATA = datasets.load("resnet110-cifar10").split(0)
SHARDS = deal(DATA, "iid", 4, 0)
MODEL = ArrayRecord({"w": Array(np.array([2.0]))})


def scaled(arrays: ArrayRecord, context: Context):
    """A model that doubles what the files say."""
    k = int(context.node_config["partition-id"])
    rows = SHARDS.block(k, k + 1)
    return arrays["w"].numpy()[0] * rows.logits, rows.labels


def grid_of(scores, **changed):
    return InProcessGrid(with_answers(ClientApp(), scores=scores), range(1, 5))


def test_probabilities_columns_and_test_rows():
    def probs(arrays, context):
        logits, labels = scaled(arrays, context)
        odds = np.exp(logits - logits.max(1, keepdims=True))
        found = {"probs": odds / odds.sum(1, keepdims=True), "labels": labels}
        return {**found, "subject": np.arange(len(labels))}

    test = {"logits": 2 * DATA.test_logits, "labels": DATA.test_labels}
    after = AfterTraining("fednewton", epsilon=8.0, unit="subject", test=test)
    result = after.start(grid_of(probs), MODEL)
    assert result.artifact.input == "probs"
    assert result.after["ece"] < result.before["ece"]
    assert not any("deals rows, not subjects" in line for line in result.privacy["more"])


class Net(torch.nn.Linear):
    def __init__(self, classes, head=lambda z: {"logits": z}):
        super().__init__(2, classes)
        self.head = head

    def forward(self, x=None, first=None, second=None):
        return self.head(super().forward(first + second if x is None else x))


ROWS, LABELS = torch.arange(8.0).reshape(4, 2), torch.tensor([0, 1, 1, 1])
TWO = {"first": ROWS / 2, "second": ROWS / 2}


@pytest.mark.parametrize(
    ("batch", "named"),
    [
        ((ROWS, LABELS), {}),
        ((TWO, LABELS), {}),
        ({"img": ROWS, "label": LABELS, "file": ["a", "b", "c", "d"]}, {}),
        ({**TWO, "row": LABELS, "labels": LABELS}, {}),
        ({"img": ROWS, "row": LABELS, "fine": LABELS}, {"inputs": "img", "target": "fine"}),
        ((0 * ROWS, ROWS, LABELS), {"inputs": [1], "target": 2}),
    ],
)
def test_batches_are_read_as_quickstarts_make_them(batch, named):
    net = Net(3).train()
    found = score_batches(net, [batch, batch], **named)
    expected = torch.nn.functional.linear(ROWS, net.weight, net.bias).detach().numpy()
    np.testing.assert_allclose(found["logits"], np.tile(expected, (2, 1)), rtol=1e-6)
    assert found["labels"].tolist() == 2 * LABELS.tolist()
    assert net.training


@pytest.mark.parametrize("classes", [1, 2])
def test_one_output_is_of_class_1_and_a_head_of_probabilities_is_seen(classes):
    nets = Net(classes), Net(classes, torch.sigmoid if classes == 1 else lambda z: z.softmax(1))
    nets[1].load_state_dict(nets[0].state_dict())
    logits, probs = (score_batches(net, [(ROWS, LABELS)]) for net in nets)
    assert logits["logits"].shape == (4, 2)
    odds = np.exp(logits["logits"])
    np.testing.assert_allclose(probs["probs"], odds / odds.sum(1, keepdims=True), rtol=1e-5)
    nets[0].load_state_dict({"weight": torch.zeros(classes, 2), "bias": torch.ones(classes) / 2})
    assert "logits" in score_batches(nets[0], [(ROWS, LABELS)])  # in [0, 1] and sum to 1, by chance
    assert nets[0].bias.tolist() == [0.5] * classes
    wrong = {"Tensor, has no names: ": [ROWS], "not NoneType": None, "single": [(ROWS[0], 1)]}
    for words, batches in wrong.items():
        with pytest.raises(FormError, match=words):
            score_batches(nets[0], batches)  # not how many rows there are


def rows_of(context):
    return [(ROWS, LABELS)] * (int(context.node_config["partition-id"]) != 2)


@pytest.mark.parametrize("functions", [{}, {"client_fn": lambda context: None}])
def test_mods_and_a_client_fn_see_no_question(functions, caplog):
    def mod(message, context, call_next):
        raise KeyError("config")

    def model(context):
        return Net(3 + len(context.run_config))

    app = with_answers(ClientApp(mods=[mod], **functions), model, rows_of)
    if not functions:
        app.train()(lambda message, context: message)
    grid = InProcessGrid(app, range(4, 0, -1))
    arrays = ArrayRecord([x.numpy() for x in Net(3).state_dict().values()])
    with caplog.at_level(logging.INFO, "flwr"):
        result = AfterTraining("fednewton", grid=grid, arrays=arrays, rounds=3).start(grid, arrays)
    assert "3 clients can answer: partition 0, partition 1, partition 3: logits of" in caplog.text
    assert "no privacy: the server sees each client's sums" in caplog.text
    assert sum("partition 2 is not asked" in line for line in caplog.messages) == 1
    assert caplog.messages.count("aggregate_train: Received 3 results and 0 failures") == 3
    assert result.sites["absent"] == ["partition 2"]
    with pytest.raises(KeyError, match="config"):
        app(Message(RecordDict(), 4, "train"), grid._contexts[4])


def test_the_former_name_adds_to_an_app_of_functions():
    app = ClientApp()
    with pytest.deprecated_call():
        add_answers(app, scores=scaled)
    AfterTraining("fednewton", grid=InProcessGrid(app, range(4)), arrays=MODEL)
    with pytest.raises(RoundFailed, match=r"node 1: .*fedcal.with_answers"):
        AfterTraining("fednewton", grid=InProcessGrid(ClientApp(), [1]), arrays=MODEL)


def test_noise_is_the_client_s_own_whatever_seed_the_server_sends(monkeypatch):
    grid, sent = grid_of(scaled), list[list[np.ndarray]]()
    deliver = grid._deliver

    def twice(message):
        replies = [deliver(message), deliver(message)]
        if message.metadata.message_type == "query.answer":
            sent.append([reply.content["answer"]["words"].numpy() for reply in replies])
        return replies[0]

    monkeypatch.setattr(grid, "_deliver", twice)
    nominal = {"rows_per_client": 1250}
    AfterTraining("fedbbq", epsilon=5.0, trust="local", seed=3, set=nominal).start(grid, MODEL)
    assert len(sent) == 4
    assert not any((one == two).all() for one, two in sent)


def test_the_server_learns_the_kind_of_an_error_and_no_text(caplog):
    def fails(arrays, context):
        if context.node_config["partition-id"] == 1:
            return [[0.0, 1.0]], ["Ms Meyer"]
        raise ValueError("row 17 is of Ms Meyer")

    kinds = "partition 0, partition 2, partition 3: ValueError; partition 1: 1 of 1 labels"
    with caplog.at_level(logging.INFO, "flwr"), pytest.raises(RoundFailed, match=kinds) as failed:
        AfterTraining("fednewton", grid=grid_of(fails), arrays=MODEL)
    assert "Meyer" not in str(failed.value)
    assert not [r for r in caplog.records if r.name == "flwr" and "Meyer" in r.getMessage()]


def a_row(logits, labels):
    logits[0, 0], labels[1] = np.nan, -1
    return logits, labels


def rows_without_ids(logits, labels):
    """Ids of any row: missing, with a control character, or like another one."""
    ids = np.array([f"p{k}" for k in range(len(labels))], object)
    ids[:6] = [None, np.nan, "NA", "", "\x07", "p\u0430"]
    ids[-1] = "pa"
    return {"logits": logits, "labels": labels, "subject": ids, "group": ids}


def failing(logits, labels):
    raise ValueError("row 17 is of Ms Meyer")


@pytest.mark.parametrize(
    ("spoilt", "lost"),
    [
        *((a_row, 2), (rows_without_ids, 5), (failing, 1250)),
        (lambda logits, labels: ([[None] * 10, *logits[1:]], [0, "x", None, *labels[3:]]), 3),
        (lambda logits, labels: (np.eye(10)[labels], labels), 0),
        (lambda logits, labels: (logits[:0], labels[:0]), 1250),
    ],
)
def test_no_row_decides_whether_a_client_answers(spoilt, lost, caplog):
    def one_of_four(arrays, context):
        found = [np.array(x) for x in scaled(arrays, context)]
        return spoilt(*found) if context.node_config["partition-id"] == 2 else found

    caplog.set_level("INFO", "flwr")
    grid = grid_of(one_of_four)
    result = AfterTraining("evaluate", epsilon=8.0, unit="example").start(grid, MODEL)
    assert result.sites == {"enrolled": 4, "answered": 4, "absent": [], "missed": {}}
    assert result.evaluated["rows"]["value"] == pytest.approx(5000 - lost, abs=40)
    seen = ("partition 2 counts as without rows" in caplog.text, "of 1250 " in caplog.text)
    assert seen == (lost == 1250, 0 < lost < 1250)


@pytest.mark.parametrize("spoilt", [a_row, lambda logits, labels: (logits, labels + 1)])
def test_an_exact_run_reports_rows_without_a_label(spoilt, caplog):
    def everywhere(arrays, context):
        return spoilt(*[np.array(x) for x in scaled(arrays, context)])

    with pytest.raises(RoundFailed, match=r"^no client can score .*partition 3: [12]\d* of 1250 "):
        AfterTraining("fednewton").start(grid_of(everywhere), MODEL)
    options = {"epsilon": 8.0, "unit": "example"}
    result = AfterTraining("fednewton", **options).start(grid_of(everywhere), MODEL)
    assert result.sites["answered"] == 4
    assert ("are labels the numbers of the columns" in str(result)) is (spoilt is not a_row)
    assert caplog.text.count("one lower than its label") == 4 * (spoilt is not a_row)


def test_one_client_does_not_say_how_many_classes_the_others_have():
    def lies(arrays, context):
        logits, labels = scaled(arrays, context)
        first = context.node_config["partition-id"] == 0
        return (logits[:, :2], labels % 2) if first else (logits, labels)

    with pytest.raises(InputError, match=r"must be .* of 2 classes., got .logits of 10 classes"):
        AfterTraining("evaluate", epsilon=8.0, unit="example").start(grid_of(lies), MODEL)
