"""A server that does not keep to what was agreed: what it asks of a site, question by question.

It is installed where the SuperLink runs; nothing of it is in the bundle that sites get.
"""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from fedcal.mechanisms import Noise
from fedcal.privacy import Federation
from fedcal.privacy.agreement import key_of_job
from fedcal.privacy.query import Asked
from fedcal.privacy.wire import asked_records
from fedcal.strategies.server.job import Job

FEDERATION = Federation(3, 2, epsilon=1.0, trust="local", noise_source="system")
JOB = Job("fedoneshot", FEDERATION, {"rows_per_client": 50.0})

app = ServerApp()


Records = dict[str, dict[str, Any]]


def asked_by(job: Job, run: str, **change: Any) -> Records:
    """The first question of an honest server's run of that name, with other fields."""
    query = job.strategy().open_round(1).request.query
    asked = Asked(query, 1, run, key_of_job(job.to_fields(), job.plan))
    return asked_records(replace(asked, **change))


def hostile(run: str) -> dict[str, Records]:
    """Return questions that differ from those of `JOB`, each in one way."""
    own = JOB.strategy().open_round(1).request
    noise = own.noise
    assert isinstance(noise, Noise)
    stated: Mapping[str, tuple[str, dict[str, Any]]] = {
        "softer noise": (
            "query",
            {
                "noise": noise.mechanism.name,
                "noise-lengths": list(noise.lengths),
                "noise-scales": [2 / 3 * scale for scale in noise.scales],
                "noise-shares": noise.shares,
            },
        ),
        "no noise": ("query", {"noise-scales": [0.0]}),
        "a seed": ("query", {"seed": 7}),
        "a coin": ("query", {"rate": 1.0}),
        "wider bound": ("query", {"norms": [2 * norm for norm in own.bound.norms]}),
        "more rounds": ("context", {"rounds": 2}),
        "an epsilon": ("context", {"epsilon": 8.0}),
    }
    others: Mapping[str, Job] = {
        "other method": Job("fedbin", FEDERATION),
        "other settings": replace(JOB, settings={"rows_per_client": 500.0}),
        "other cohort": replace(JOB, federation=replace(FEDERATION, clients=300)),
        "other epsilon": replace(JOB, federation=replace(FEDERATION, epsilon=8.0)),
        "other unit": replace(JOB, federation=replace(FEDERATION, unit="example")),
        "other trust": replace(JOB, federation=replace(FEDERATION, trust="central")),
        "no privacy": Job("fedoneshot", Federation(3, 2, noise_source="system")),
    }
    fedbin = others["other method"].strategy().open_round(1).request.query
    hostile = {name: asked_by(job, run) for name, job in others.items()}
    hostile["other question"] = asked_by(JOB, run, query=fedbin)
    hostile["other parameter"] = asked_by(JOB, run, query=replace(own.query, low=0.3))
    hostile["another round"] = asked_by(JOB, run, round=2)
    hostile["no word of what for"] = {**asked_by(JOB, run), "context": {}}
    for name, (record, fields) in stated.items():
        honest = asked_by(JOB, run)
        hostile[name] = {**honest, record: honest[record] | fields}
    return hostile


def content_of(records: Records, **more: ConfigRecord) -> RecordDict:
    return RecordDict({**{name: ConfigRecord(of) for name, of in records.items()}, **more})


def ask(
    grid: Grid, node: int, contents: Mapping[str, RecordDict], kind: str = "query.answer"
) -> dict[str, Any]:
    """Return what came back: the words of an answer, or the reason of an error."""
    names = list(contents)
    asking = [Message(contents[name], node, kind, group_id="1") for name in names]
    replies: Iterable[Message] = grid.send_and_receive(asking, timeout=120)
    by_id = {reply.metadata.reply_to_message_id: reply for reply in replies}
    answers: dict[str, Any] = {}
    for name, message in zip(names, asking, strict=True):
        reply = by_id.get(message.metadata.message_id)
        if reply is None:
            answers[name] = "nothing came"
        elif reply.has_error():
            answers[name] = reply.error.reason
        else:
            answers[name] = reply.content.array_records["answer"]["words"].numpy().tolist()
    return answers


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Ask as the key `play` says, and write what came back into the file `out`."""
    play, run = str(context.run_config["play"]), str(context.run_config["run"])
    while not (nodes := list(grid.get_node_ids())):
        time.sleep(0.1)
    honest = asked_by(JOB, run)
    query = JOB.strategy().open_round(1).request.query
    second = asked_by(JOB, run, query=replace(query, low=0.3))
    masking = ConfigRecord({"seed": 9, "cohort": [0, 1, 2]})
    if play == "all":
        wrong = {name: content_of(request) for name, request in hostile(run).items()}
        answers = ask(grid, nodes[0], {**wrong, "masks": content_of(honest, masking=masking)})
        answers |= ask(grid, nodes[0], {"honest": content_of(honest)})
        answers |= ask(
            grid, nodes[0], {"replayed": content_of(honest), "second question": content_of(second)}
        )
    elif play == "giants":
        padding = ConfigRecord({"x": bytes(80 << 20)})  # more than one reply may carry
        answers = ask(grid, nodes[0], {"answer": content_of(honest, padding=padding)})
        padding = ConfigRecord({"x": bytes(1 << 20)})
        answers |= ask(grid, nodes[0], {"who": RecordDict({"padding": padding})}, "query.who")
    else:
        fields = {**context.run_config}
        answers = ask(grid, nodes[0], {play: content_of(asked_by(Job.from_fields(fields), run))})
    Path(str(context.run_config["out"])).write_text(json.dumps(answers), "utf-8")
