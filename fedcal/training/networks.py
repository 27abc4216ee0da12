"""Every network by its name."""

from __future__ import annotations

from functools import lru_cache

from fedcal.core.checks import one_of
from fedcal.core.errors import InputError
from fedcal.core.registry import registry
from fedcal.training.deep import CNN, LSTM, MLP, ResNet18
from fedcal.training.linear import Linear
from fedcal.training.network import Network, shape_of

NETWORKS: dict[str, Network] = {
    name: made() for name, made in registry(Linear, MLP, CNN, ResNet18, LSTM).items()
}
"""Name on the command line -> network."""

OWN: dict[str, Network] = {}
"""`module:Class` -> a module of the user's own, since this process was given it (`own.enlist`)."""


def network_named(text: str, what: str = "network") -> Network:
    """Return the network of this name: of `NETWORKS`, with widths as "mlp:64x32", or of `OWN`.

    Nothing is imported here: the name may be a server's, or a file's.

    Raises InputError if there is none; `what` it is called.
    """
    name, _, widths = str(text).partition(":")
    if text in OWN:
        return OWN[text]
    if name in NETWORKS and widths[:1].isdigit():
        return _wide(name, widths)
    if widths:
        raise InputError(
            f"{what} {text[:80]!r} is a user's own module, and its name alone imports no code: "
            "pass the module itself (--model of fedcal train and fedcal apply; "
            "load_model(path, model=...))"
        )
    return NETWORKS[one_of(what, text, NETWORKS)]


@lru_cache(maxsize=32)
def _wide(name: str, widths: str) -> Network:
    """One object for each text: what was built for it is found again."""
    return NETWORKS[name].of_widths(tuple(shape_of(one)[0] for one in widths.split("x")))
