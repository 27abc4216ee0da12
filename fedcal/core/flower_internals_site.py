"""Parts of Flower beyond its public modules that a site's process uses; see `flower_internals`."""

import contextlib
import inspect
from collections.abc import Iterator
from hashlib import sha256
from importlib import import_module
from typing import Any

from fedcal.core.checks import InputError

KNOWN = "1.39.0"
"""The version of Flower that a site was tried with: that of the extra `sites`. From 1.40 on a
server's sites and its control API, which has no login, share one port."""

# the body of `flwr-clientapp`, a module: the only way to answer without the server's bundle
_RUNTIME = "flwr.supernode.runtime.run_clientapp"

REPLACED = (
    "install_from_fab",  # unpacks the server's bundle
    "get_load_client_app_fn",  # imports what the bundle names
    "pull_task_input",  # after an error in it, Flower waits for a reply that never comes
)
"""Functions of `run_clientapp` in whose place a site has its own."""

_GIVEN = {"runtime_api_address", "token", "insecure", "parent_pid", "runtime_dependency_install"}


def __getattr__(name: str) -> Any:
    """Import Flower's module `run_clientapp`."""
    if name != "run_clientapp":
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return import_module(_RUNTIME)


def check_flower() -> None:
    """Refuse a Flower whose client runtime is unknown here.

    Raises
    ------
    InputError
        If it is a version that was not tried, a name that must be replaced is not there (the
        server's bundle would be run), or what is called takes other parameters.
    """
    import flwr

    flower, version = import_module(_RUNTIME), flwr.__version__
    wrong = ""
    if version != KNOWN:
        wrong = "was not tested: fedcal site cannot know whether it would run the server's code"
    for name in (*REPLACED, "run_clientapp"):
        if not wrong and not callable(getattr(flower, name, None)):
            wrong = f"has no {name} in {flower.__name__}: it is not the tested version"
    if not wrong and (lacks := _GIVEN - inspect.signature(flower.run_clientapp).parameters.keys()):
        wrong = f"has a run_clientapp without {min(lacks)}: it is not the tested version"
    if wrong:
        raise InputError(f"flwr {version} {wrong}; pip install 'fedcal[sites]' (flwr=={KNOWN})")


@contextlib.contextmanager
def replaced(module: Any, **names: Any) -> Iterator[None]:
    """Within the block these names of a module mean something else."""
    before = {name: getattr(module, name) for name in names}
    try:
        for name, value in names.items():
            setattr(module, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


def reply_to_bundle(bundle: bytes) -> Any:
    """Return what `run_clientapp` replies to a message `query.probe` of a run with this bundle.

    A stand-in takes the place of its connection, for there is none. None if it does not reply.
    """
    from flwr.app import Context, Message, RecordDict
    from flwr.supercore.fab import Fab
    from flwr.supercore.run import Run
    from flwr.supercore.task_identity import TaskIdentity
    from flwr.supernode.runtime import run_clientapp as flower

    replies: list[Message] = []
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    message, run = Message(RecordDict(), 1, "query.probe"), Run.create_empty(1)
    run.fab_id, run.fab_version, run.fab_hash = "test/probe", "1.0.0", "0" * 64
    fab = Fab(sha256(bundle).hexdigest(), bundle, {})
    task = (message, Context(1, 1, {}, RecordDict(), {}), run, fab)
    silent = ("event", "register_signal_handlers", "make_task_heartbeat_fn_http", "flwr_exit")
    with (
        replaced(
            flower,
            RuntimeHttpClient=_NoConnection,
            HeartbeatSender=_NoConnection,
            pull_task_input=lambda client: task,
            push_message=lambda client, reply, context: replies.append(reply),
            **dict.fromkeys(silent, _nothing),
        ),
        contextlib.suppress(SystemExit),
    ):
        flower.run_clientapp("", "none", insecure=True, runtime_dependency_install=False)
    return replies[0] if len(replies) == 1 else None


def _nothing(*_: object, **__: object) -> None: ...


class _NoConnection:
    """In place of what would talk to a SuperNode."""

    def __init__(self, *_: object) -> None:
        self.start = _nothing

    from_server_address = staticmethod(_nothing)
