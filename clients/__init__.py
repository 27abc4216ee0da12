"""What a client computes: bounded contributions, vectorised over the clients of a `Shards`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if __name__ != "fedcal.clients":  # a second copy of every class and registry would be made
    raise ImportError(f"import fedcal.clients, not {__name__}")

if TYPE_CHECKING:
    from fedcal.clients.any_app import add_answers

__all__ = ["add_answers"]


def __getattr__(name: str) -> Any:
    """Import on first use: most clients are simulated, and need no Flower."""
    if name in __all__:
        from fedcal.clients import any_app

        return getattr(any_app, name)
    raise AttributeError(f"module 'fedcal.clients' has no attribute {name!r}")
