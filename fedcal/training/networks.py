"""Every network by its name."""

from __future__ import annotations

from fedcal.core.registry import registry
from fedcal.training.deep import CNN, LSTM, MLP, ResNet18
from fedcal.training.linear import Linear
from fedcal.training.network import Network

NETWORKS: dict[str, Network] = {
    name: made() for name, made in registry(Linear, MLP, CNN, ResNet18, LSTM).items()
}
"""Name on the command line -> network."""
