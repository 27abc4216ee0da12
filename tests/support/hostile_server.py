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
from fedcal.privacy.request import Request
from fedcal.strategies.server.job import Job

FEDERATION = Federation(3, 2, epsilon=1.0, trust="local", noise_source="system")
JOB = Job("fedoneshot", FEDERATION, {"rows_per_client": 50.0})

app = ServerApp()


def asked_by(job: Job, run: str) -> Request:
    """The first question of an honest server's run of that name."""
    opened = job.strategy().open_round(1)
    assert opened.request.context is not None
    return replace(opened.request, context=replace(opened.request.context, run=run))


def hostile(run: str) -> dict[str, Request]:
    """Questions that are not those of `JOB`, each in one way."""
    honest = asked_by(JOB, run)
    noise, context = honest.noise, honest.context
    assert isinstance(noise, Noise)
    assert context is not None
    softer = replace(noise, scales=tuple(2 / 3 * scale for scale in noise.scales))
    wider = replace(honest.bound, norms=tuple(2 * norm for norm in honest.bound.norms))
    others: Mapping[str, Job] = {
        "other method": Job("fedbin", FEDERATION),
        "other settings": replace(JOB, settings={"rows_per_client": 500.0}),
        "other cohort": replace(JOB, federation=replace(FEDERATION, clients=300)),
        "other epsilon": replace(JOB, federation=replace(FEDERATION, epsilon=8.0)),
        "other unit": replace(JOB, federation=replace(FEDERATION, unit="example")),
        "other trust": replace(JOB, federation=replace(FEDERATION, trust="central")),
        "no privacy": Job("fedoneshot", Federation(3, 2, noise_source="system")),
    }
    return {
        "softer noise": replace(honest, noise=softer),
        "no noise": replace(honest, noise=None),
        "wider bound": replace(honest, bound=wider),
        "more rounds": replace(honest, context=replace(context, rounds=2)),
        "no word of what for": replace(honest, context=None),
        **{name: asked_by(job, run) for name, job in others.items()},
    }


def content_of(request: Request, **more: ConfigRecord) -> RecordDict:
    query, context = request.to_fields(), request.context_fields()
    asked = {"query": ConfigRecord(query), "context": ConfigRecord(context)}
    return RecordDict({**asked, **more})


def ask(
    grid: Grid, node: int, contents: Mapping[str, RecordDict], kind: str = "query.answer"
) -> dict[str, Any]:
    """What came back: the words of an answer, or the reason of an error."""
    names = list(contents)
    asking = [Message(contents[name], node, kind, group_id="1") for name in names]
    replies: Iterable[Message] = grid.send_and_receive(asking, timeout=120)
    by_id = {reply.metadata.reply_to_message_id: reply for reply in replies}
    heard: dict[str, Any] = {}
    for name, message in zip(names, asking, strict=True):
        reply = by_id.get(message.metadata.message_id)
        if reply is None:
            heard[name] = "nothing came"
        elif reply.has_error():
            heard[name] = reply.error.reason
        else:
            heard[name] = reply.content.array_records["answer"]["words"].numpy().tolist()
    return heard


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Ask as the key `play` says, and write what came back into the file `out`."""
    play, run = str(context.run_config["play"]), str(context.run_config["run"])
    while not (nodes := list(grid.get_node_ids())):
        time.sleep(0.1)
    honest = asked_by(JOB, run)
    second = replace(honest, query=replace(honest.query, low=0.3))
    masking = ConfigRecord({"seed": 9, "cohort": [0, 1, 2]})
    if play == "all":
        wrong = {name: content_of(request) for name, request in hostile(run).items()}
        heard = ask(grid, nodes[0], {**wrong, "masks": content_of(honest, masking=masking)})
        heard |= ask(grid, nodes[0], {"honest": content_of(honest)})
        heard |= ask(
            grid, nodes[0], {"replayed": content_of(honest), "second question": content_of(second)}
        )
    elif play == "giants":
        padding = ConfigRecord({"x": bytes(80 << 20)})  # more than one reply may carry
        heard = ask(grid, nodes[0], {"answer": content_of(honest, padding=padding)})
        padding = ConfigRecord({"x": bytes(1 << 20)})
        heard |= ask(grid, nodes[0], {"who": RecordDict({"padding": padding})}, "query.who")
    else:
        fields = {**context.run_config}
        heard = ask(grid, nodes[0], {play: content_of(asked_by(Job.from_fields(fields), run))})
    Path(str(context.run_config["out"])).write_text(json.dumps(heard), "utf-8")
