"""All that fedcal uses of Flower beyond its public modules, each with the reason.

What the process of a site uses, and it alone, is in `flower_internals_site`.

Public are `flwr.app`, `flwr.clientapp`, `flwr.serverapp` and Flower's commands. Anything else may
be another thing in Flower's next release; no module but these two names it. Nothing of Flower is
imported before it is used.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

_NAMES = {
    # an error reply has a number; what the numbers mean is told nowhere else
    "ErrorCode": "flwr.common.constant:ErrorCode",
    # a message can be made inside one of Flower's tasks alone: what has none says it is one
    "TaskIdentity": "flwr.supercore.task_identity:TaskIdentity",
    # how long a server waits for the parts of a message is a default there, a module
    "inflatable_utils": "flwr.supercore.inflatable.inflatable_utils",
    # has a SuperNode send a reply that no process made
    "insert_reply": "flwr.supernode.start_client_internal:_insert_message",
    # every command that a SuperLink can make a site's executor start: none may be Flower's own
    "TASK_TYPE_TO_COMMAND": "flwr.supercore.constant:TASK_TYPE_TO_COMMAND",
    # the command `flwr` as a function: each start of a process takes seconds
    "flwr_command": "flwr.cli.app:app",
    # the loop of `flower-supernode`, a module: it has no option for its pauses, nor for sizes
    "start_client_internal": "flwr.supernode.start_client_internal",
}


def __getattr__(name: str) -> Any:
    """Import one of `_NAMES`."""
    if name not in _NAMES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    module, _, attribute = _NAMES[name].partition(":")
    source = import_module(module)
    return getattr(source, attribute) if attribute else source


def lifespan_of(app: Any, context: Any) -> Any:
    """Return the context manager that a ClientApp has registered with `@app.lifespan()`."""
    return app._lifespan(context)


def set_message_id(message: Any, value: str) -> None:
    """Give a message the number that a SuperLink would: a `Grid` that has none needs it."""
    message.metadata.__dict__["_message_id"] = value


def run_supernode(clock: Any, pull: Callable[..., Any], most_bytes: int) -> None:
    """Run `flower-supernode`, whose arguments are those of this process, with a loop of our own.

    Parameters
    ----------
    clock
        in place of the module `time`: Flower looks for messages every three seconds
    pull
        makes a function with limits of `_pull_and_store_message`, which takes whatever comes
    most_bytes
        in one reply of the SuperLink
    """
    from flwr.supernode import cli

    flower: Any = import_module(_NAMES["start_client_internal"])
    flower.time = clock
    flower._pull_and_store_message = pull(flower._pull_and_store_message)
    flower.GRPC_MAX_MESSAGE_LENGTH = most_bytes
    cli.flower_supernode()


def limit_pulls(seconds: float) -> None:
    """Wait no longer for the parts of a message whose first part has come."""
    pulls: Any = import_module(_NAMES["inflatable_utils"]).pull_objects
    pulls.__kwdefaults__["max_time"] = seconds


def is_too_large(error: Exception) -> bool:
    """Return whether a reply of the SuperLink is larger than `run_supernode` lets through."""
    code = getattr(error, "code", None)  # a method, of an error of gRPC
    return getattr(code() if callable(code) else None, "name", "") == "RESOURCE_EXHAUSTED"
