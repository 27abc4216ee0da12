"""What runs in place of `flwr-clientapp`, and hands messages on to it."""

import socket
import threading
from pathlib import Path

import flwr
import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.runtime import run_clientapp as flower

from fedcal.clients.site.policy import CPU_SECONDS
from fedcal.clients.site.preparing import prepare
from fedcal.clients.site.process import handover, runtime
from fedcal.clients.site.process.limits import COPIES, MEMORY_MIB
from fedcal.clients.site.process.site_app import Refused
from fedcal.core.checks import FedcalError, InputError
from fedcal.core.shards import Shards

ARGUMENTS = ["--runtime-api-address", "127.0.0.1:1", "--token", "t", "--insecure"]


def test_a_message_is_answered_by_the_site_s_own_app(tmp_path, monkeypatch):
    rows = Shards(np.zeros((2, 2)), np.array([0, 1]), np.array([0, 2]))
    prepare(tmp_path / "site", rows)
    replies, limits = [], []

    def run(
        runtime_api_address: str,
        token: str,
        insecure: bool,
        parent_pid: int | None,
        runtime_dependency_install: bool,
    ) -> None:
        """As Flower's own does."""
        app = flower.get_load_client_app_fn(default_app_ref="", app_path=None, multi_app=True)(
            "evil/app", "1.0", "0" * 64
        )
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        message = Message(RecordDict(), 1, "query.who")
        context = Context(1, 1, {}, RecordDict(), {})
        replies.append(app(message, context))
        assert not runtime_dependency_install
        raise SystemExit(7)

    monkeypatch.setattr(flower, "run_clientapp", run)
    monkeypatch.setattr(runtime, "limit_cpu", limits.append)
    monkeypatch.setattr(runtime, "limit_memory", limits.append)
    assert runtime.run_message(ARGUMENTS, tmp_path / "site") == 7
    with pytest.raises(Refused):  # there is no site here, and the message is answered all the same
        runtime.run_message(ARGUMENTS, tmp_path)
    assert replies[0].content.config_records["who"]["classes"] == 2
    at_least = MEMORY_MIB << 20
    of_rows = sum(file.stat().st_size for file in (tmp_path / "site").glob("*.npy"))
    assert limits == [CPU_SECONDS, at_least + COPIES * of_rows, CPU_SECONDS, at_least]


def test_a_flower_that_is_not_known_answers_nothing(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv(runtime.SITE, str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(flwr, "__version__", "1.38.0")
        assert runtime.main(ARGUMENTS) == 2
        with pytest.raises(InputError):
            runtime.run_message(ARGUMENTS, Path("nowhere"))
    assert "flwr==1.39.0" in capsys.readouterr().err

    def fails() -> None:
        raise FedcalError("code would run")

    monkeypatch.setattr(runtime, "self_test", fails)
    assert runtime.main(ARGUMENTS) == 1
    assert capsys.readouterr().err == "fedcal: error: code would run\n"
    assert list(tmp_path.iterdir()) == []


def test_the_exit_code_is_the_workers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert handover.hand_over(["x"]) is None  # there is none
    taken = []
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(handover.WORKER)
        assert handover.hand_over(["x"]) is None  # it is gone
        door.listen()
        for said, code in ((b"0", 0), (b"3", 3), (b"", 1)):

            def serve(said: bytes = said) -> None:
                line, _ = door.accept()
                with line:
                    taken.append(b"".join(iter(lambda: line.recv(9), b"")))
                    line.sendall(said)

            worker = threading.Thread(target=serve)
            worker.start()
            assert handover.hand_over(["--token", "a b", ""]) == code
            worker.join()
    assert taken == [b"--token\0a b\0"] * 3
