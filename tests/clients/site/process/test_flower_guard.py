"""Flower's client runtime neither unpacks nor imports what a server sends."""

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.supernode.runtime import run_clientapp as flower

from fedcal.clients.site.process import runtime as guard
from fedcal.clients.site.process.runtime import own_app, self_test
from fedcal.clients.site.site_log import LOGGER
from fedcal.core.checks import FedcalError
from fedcal.core.flower_internals_site import replaced, reply_to_bundle


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
        refused = reply_to_bundle(guard._bundle(**hostile(mark)))
        answered = reply_to_bundle(guard._bundle())
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
    reply_to_bundle(guard._bundle(**hostile(mark)))
    assert mark.exists()


def test_the_self_test_passes_and_leaves_nothing(caplog):
    before = {name: getattr(flower, name) for name in vars(flower)}
    threads = os.listdir("/proc/self/task") if os.path.isdir("/proc/self/task") else []
    self_test()
    assert {name: getattr(flower, name) for name in vars(flower)} == before
    assert caplog.messages == []
    if threads:
        assert len(os.listdir("/proc/self/task")) == len(threads)


@pytest.mark.parametrize("half", [(), ("load",), ("install",), ("install", "load")])
def test_the_self_test_sees_half_a_guard(half, monkeypatch):
    @contextlib.contextmanager
    def own(app: ClientApp) -> Iterator[None]:
        load, install = lambda **_: lambda *_: app, lambda *_, **__: None
        whole = {"load": ("get_load_client_app_fn", load), "install": ("install_from_fab", install)}
        with replaced(flower, **dict(whole[name] for name in half)):
            yield

    monkeypatch.setattr(guard, "own_app", own)
    with pytest.raises(FedcalError, match="no request is answered"):
        self_test()


def test_the_self_test_sees_a_flower_that_takes_another_way(monkeypatch):
    """The names are there, and are not what is called."""
    install, load, run = (
        *(flower.install_from_fab, flower.get_load_client_app_fn, flower.run_clientapp),
    )

    def other_way(*args: object, **kwargs: object) -> None:
        with replaced(flower, install_from_fab=install, get_load_client_app_fn=load):
            run(*args, **kwargs)

    monkeypatch.setattr(flower, "run_clientapp", other_way)
    with pytest.raises(FedcalError, match="no request is answered"):
        self_test()


def test_a_message_that_cannot_be_read_ends_the_process(monkeypatch, caplog):
    """Flower hears of a process that ended, and replies; of one that failed it does not."""

    def fails(client: object) -> None:
        raise MemoryError("all of it")

    monkeypatch.setattr(flower, "pull_task_input", fails)
    with guard.own_app(probe_app()), pytest.raises(SystemExit):
        flower.pull_task_input(None)
    assert caplog.messages == ["refused to answer: a message cannot be read: MemoryError"]
