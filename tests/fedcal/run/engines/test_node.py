"""How often a site looks for messages, and how large those are that it takes."""

import hashlib
import inspect
import io
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode import start_client_internal as flower
from flwr.supernode.nodestate import NodeStateFactory

from fedcal.clients.site.process import runtime
from fedcal.clients.site.process.site_app import site_app
from fedcal.core.checks import InputError
from fedcal.run.engines import node, supernode


class SuperLink:
    """What Flower's loop is given of a SuperLink: one message of a run, and the run's bundle."""

    def __init__(self, kind: str, record: ConfigRecord, files: Mapping[str, str | bytes]) -> None:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.message = Message(RecordDict({"record": record}), 1, kind)
        self.message.metadata.__dict__["_message_id"] = self.message.object_id
        self.parts = get_all_nested_objects(self.message)
        self.tree = get_object_tree(self.message)
        content = packed(files)
        self.fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
        self.pulled: list[int] = []
        self.confirmed: list[str] = []
        self.state = NodeStateFactory(stores := ObjectStoreFactory()).state()
        self.store = stores.store()
        self.run = Run.create_empty(1)

    def pull(self, run: int, part: str) -> bytes:
        content = self.parts[part].deflate()
        self.pulled.append(len(content))
        return content

    def ask(self) -> str:
        """The error that the site replies with, "" if the message waits to be answered."""
        self.state.set_node_id(1)
        pull = node.limited(flower._pull_and_store_message)
        pull(
            state=self.state,
            object_store=self.store,
            node_config={},
            receive=lambda: (self.message, self.tree),
            get_run=lambda _: self.run,
            get_fab=lambda *_: self.fab,
            pull_object=self.pull,
            confirm_message_received=lambda *which: self.confirmed.append(str(which)),
            trusted_entities=None,
        )
        get = getattr(
            self.state, "get_messages_legacy", self.state.get_messages
        )  # its name in 1.42
        replies = get(is_reply=True)
        return replies[0].error.reason if replies else ""


def packed(files: Mapping[str, str | bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, content in files.items():
            bundle.writestr(name, content)
    return file.getvalue()


RUN_CONFIG = {"pyproject.toml": runtime._APP, ".info/CONTENT": ""}


def test_a_giant_message_is_refused_before_it_is_complete(monkeypatch, caplog):
    monkeypatch.setattr(node, "MESSAGE_BYTES", 1 << 20)
    for kind, size, full in (
        ("query.who", 1 << 10, True),
        ("query.who", 1 << 17, False),
        ("query.answer", 1 << 17, True),
        ("query.answer", 1 << 20, False),
    ):
        link = SuperLink(kind, ConfigRecord({"x": bytes(size)}), RUN_CONFIG)
        assert link.ask() == ("" if full else "InputError; see the site's own log")
        assert len(link.confirmed) == full
    assert caplog.messages[-1] == (
        "refused to answer: a message 'query.answer' of more than 1024 KiB came, which is not read"
    )


def test_a_message_has_a_size_by_its_kind():
    app = site_app(Path("nowhere"))
    long = {f"query.{kind}" for kind in ("answer", "confirm", "open", "result")}
    kinds = set(app._registered_funcs)
    assert set(node._LONG) <= kinds  # no kind is left out
    assert kinds - set(node._LONG) == {"query.who", "query.enrol"}
    for kind in (*long, "query.who", "query.enrol", "query.rows", "train", ""):
        most = node.MESSAGE_BYTES if kind in long else node.SHORT_BYTES
        intake = node.Intake(kind)
        assert intake.most == most, kind
        intake.take(most - node._PART_BYTES)
        intake.take(1)  # as much as the smallest part
        with pytest.raises(InputError, match=f"more than {most >> 10} KiB"):
            intake.take(0)


def test_parts_that_are_too_large_or_too_many_are_refused(monkeypatch):
    class Full(Exception):
        def code(self) -> Any:
            return SimpleNamespace(name="RESOURCE_EXHAUSTED")

    def fails(run: int, part: str) -> bytes:
        raise Full

    link = SuperLink("query.answer", ConfigRecord(), RUN_CONFIG)
    monkeypatch.setattr(link, "pull", fails)
    assert "InputError" in link.ask()  # gRPC does not take it
    link = SuperLink("query.who", ConfigRecord(), RUN_CONFIG)
    link.tree.children.extend([link.tree.children[0]] * 1000)
    assert "InputError" in link.ask()
    assert link.pulled == []


def test_a_bundle_is_not_unpacked_into_memory(caplog):
    link = SuperLink(
        "query.who", ConfigRecord(), {**RUN_CONFIG, "pyproject.toml": b" " * (1 << 24)}
    )
    assert len(link.fab.content) < 1 << 20
    assert "InputError" in link.ask()
    assert "a file in the server's bundle must be" in caplog.messages[-1]
    link.fab = Fab("0" * 64, b"no zip", {})
    assert "InputError" in link.ask()


def test_what_flower_calls_is_what_is_replaced(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(
        "flwr.supernode.cli.flower_supernode",
        lambda: seen.append((flower.GRPC_MAX_MESSAGE_LENGTH, flower._pull_and_store_message)),
    )
    for replaced in ("GRPC_MAX_MESSAGE_LENGTH", "time", "_pull_and_store_message"):
        monkeypatch.setattr(flower, replaced, getattr(flower, replaced))
    monkeypatch.setattr(sys, "argv", ["node", "flower-supernode"])
    monkeypatch.setenv(node.SITE, str(tmp_path))
    monkeypatch.setattr(node, "log_to", lambda path: None)
    node.main()
    ((most, pull),) = seen
    assert node.MESSAGE_BYTES < most < 2 * node.MESSAGE_BYTES
    assert pull.__qualname__.startswith("limited.")
    source = inspect.getsource(flower.start_client_internal)
    assert "run_id = _pull_and_store_message(" in source
    assert "GRPC_MAX_MESSAGE_LENGTH," in inspect.getsource(flower._init_connection)


def test_flower_finds_our_command_for_a_message_and_others_do_nothing(tmp_path, monkeypatch):
    """The worker takes what `flwr-clientapp` is given; what imports a bundle ends at once."""
    started, taken = [], []
    monkeypatch.setattr(supernode, "ProcessTree", lambda _, **o: started.append(o) or nullcontext())
    monkeypatch.chdir(tmp_path)  # a longer path fits no socket
    with (
        supernode.supernode(tmp_path, fleet="h:1", root_certificates=tmp_path, key=tmp_path),
        socket.create_server("worker.sock", family=socket.AF_UNIX) as door,
    ):

        def serve() -> None:
            with suppress(OSError):
                while True:
                    with door.accept()[0] as line:
                        taken.append(line.recv(99))
                        line.sendall(b"7")

        (worker := threading.Thread(target=serve)).start()
        found = [p for p in Path(started[0]["env"]["PATH"]).iterdir() if "superexec" not in p.name]
        codes = {p.name: subprocess.run([p, p.name], env={}).returncode for p in found}
        door.shutdown(socket.SHUT_RDWR)
        worker.join()
    assert codes == dict.fromkeys(codes, 1) | {"flwr-clientapp": 7}
    assert taken == [b"flwr-clientapp"]
