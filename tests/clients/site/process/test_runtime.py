"""What runs in place of `flwr-clientapp`, and hands messages on to it."""

import contextlib
import logging
import os
import socket
import sys
import threading
import zipfile
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path

import flwr
import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.runtime import run_clientapp as flower
from refusals import each_is_refused, refused

from fedcal.clients.site.preparing import prepare
from fedcal.clients.site.process import handover, runtime
from fedcal.clients.site.process.limits import COPIES, CPU_SECONDS, MEMORY_MIB
from fedcal.clients.site.process.runtime import check_bundle, own_app, self_test
from fedcal.clients.site.process.site_app import Refused
from fedcal.clients.site.site_log import LOGGER
from fedcal.core.checks import FedcalError, InputError
from fedcal.core.flower_internals_site import replaced, reply_to_bundle
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
    monkeypatch.setattr(runtime.limits, "limit_cpu", limits.append)
    monkeypatch.setattr(runtime.limits, "limit_memory", limits.append)
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
        for output, code in ((b"0", 0), (b"3", 3), (b"", 1)):

            def serve(output: bytes = output) -> None:
                line, _ = door.accept()
                with line:
                    taken.append(b"".join(iter(lambda: line.recv(9), b"")))
                    line.sendall(output)

            worker = threading.Thread(target=serve)
            worker.start()
            assert handover.hand_over(["--token", "a b", ""]) == code
            worker.join()
    assert taken == [b"--token\0a b\0"] * 3


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch, tmp_path):
    """Flower puts the folder of an app that it loads first on the path; and its home is ours."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "home"))
    monkeypatch.setitem(sys.modules, "hostile", None)
    monkeypatch.delitem(sys.modules, "hostile")


def probe_app() -> ClientApp:
    own = ClientApp()

    @own.query("probe")
    def probe(message: Message, context: Context) -> Message:
        return Message(RecordDict(), reply_to=message)

    return own


def hostile(mark: Path) -> dict[str, str]:
    return {"hostile.py": f"open({str(mark)!r}, 'w').close()\nraise SystemExit"}


def test_a_bundle_with_code_is_one_line_here_and_a_class_there(tmp_path, caplog):
    caplog.set_level(logging.INFO, LOGGER)
    mark = tmp_path / "mark"
    with own_app(probe_app()):
        refused = reply_to_bundle(runtime._bundle(**hostile(mark)))
        answered = reply_to_bundle(runtime._bundle())
    assert "InputError; see the site's own log" in refused.error.reason
    assert "hostile" not in refused.error.reason
    (line,) = [r.getMessage() for r in caplog.records if r.name == LOGGER]
    assert line == (
        "refused to answer: the server's bundle contains 3 files where pyproject.toml and "
        ".info/CONTENT are allowed: 'hostile.py'"
    )
    assert not answered.has_error()
    assert not mark.exists()
    assert not (tmp_path / "home").exists()


def test_flower_alone_runs_the_code(tmp_path):
    """What all this is for; were it not so, the tests here would show nothing."""
    mark = tmp_path / "mark"
    reply_to_bundle(runtime._bundle(**hostile(mark)))
    assert mark.exists()


def test_the_self_test_passes_and_leaves_nothing(caplog):
    before = {name: getattr(flower, name) for name in vars(flower)}
    threads = os.listdir("/proc/self/task") if os.path.isdir("/proc/self/task") else []
    self_test()
    assert {name: getattr(flower, name) for name in vars(flower)} == before
    assert caplog.messages == []
    if threads:
        assert len(os.listdir("/proc/self/task")) == len(threads)


@pytest.mark.parametrize("half", [("load",), ("install",), ("install", "load")])
def test_the_self_test_sees_half_a_guard(half, monkeypatch):
    @contextlib.contextmanager
    def own(app: ClientApp) -> Iterator[None]:
        load, install = lambda **_: lambda *_: app, lambda *_, **__: None
        full = {"load": ("get_load_client_app_fn", load), "install": ("install_from_fab", install)}
        with replaced(flower, **dict(full[name] for name in half)):
            yield

    monkeypatch.setattr(runtime, "own_app", own)
    with pytest.raises(FedcalError, match="no request is answered"):
        self_test()


def test_the_self_test_sees_a_flower_that_works_otherwise(monkeypatch):
    """The names are there, and are not what is called."""
    install, load, run = (
        *(flower.install_from_fab, flower.get_load_client_app_fn, flower.run_clientapp),
    )

    def other_direction(*args: object, **kwargs: object) -> None:
        with replaced(flower, install_from_fab=install, get_load_client_app_fn=load):
            run(*args, **kwargs)

    monkeypatch.setattr(flower, "run_clientapp", other_direction)
    with pytest.raises(FedcalError, match="no request is answered"):
        self_test()


def test_a_message_that_cannot_be_read_ends_the_process(monkeypatch, caplog):
    """Flower hears of a process that ended, and replies; of one that failed it does not."""

    def fails(client: object) -> None:
        raise MemoryError("all of it")

    monkeypatch.setattr(flower, "pull_task_input", fails)
    with runtime.own_app(probe_app()), pytest.raises(SystemExit):
        flower.pull_task_input(None)
    assert caplog.messages == ["refused to answer: a message cannot be read: MemoryError"]


OURS = {"pyproject.toml": b"[project]", ".info/CONTENT": b"pyproject.toml,0,0"}


def packed(files: Mapping[str, bytes], how: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = BytesIO()
    with zipfile.ZipFile(out, "w", how) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def test_any_other_member_is_refused():
    others = (
        *("hostile.py", "pyproject.toml.py", ".info/hostile.py", "fedcal/__init__.py", "lib/"),
        *("../pyproject.toml", "./pyproject.toml", "PYPROJECT.TOML", "\n2026-01-01 answered"),
    )
    table = [(packed({**OURS, name: b"raise"}), "bundle contains 3 files") for name in others]
    # Python's zipfile cuts names at the first zero
    cut = packed({**OURS, "pyproject.tomlXevil.py": b""}).replace(b"Xevil", b"\0evil")
    twice = BytesIO(packed(OURS))
    with zipfile.ZipFile(twice, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("pyproject.toml", b"[project.other]")
    table += [(content, "bundle contains 3 files") for content in (cut, twice.getvalue())]
    missing = ({}, {"pyproject.toml": b""}, {".info/CONTENT": b""})
    table += [(packed(files), "bundle contains") for files in missing]
    table += [(content, "bundle") for content in (b"", b"PK", b"x" * 99, packed(OURS)[:-9])]
    each_is_refused(table, check_bundle, most=300)


def test_sizes_are_bounded_and_nothing_is_unpacked(monkeypatch):
    bomb = packed({**OURS, "pyproject.toml": bytes(runtime.MOST_BYTES + 1)})
    assert len(bomb) < 20_000
    plain = packed(OURS)
    monkeypatch.delattr(zipfile.ZipFile, "open")
    check_bundle(plain)
    refused("a file in the server's bundle must be", check_bundle, bomb)
    refused("size of a bundle must be", check_bundle, bytes(runtime.MOST_BYTES + 1))
