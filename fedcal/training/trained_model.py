"""A trained model: its network and its weights, in one file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import same
from fedcal.core.numerics import softmax
from fedcal.core.pages import Part, Table
from fedcal.core.types import Floats, override
from fedcal.metrics import summary
from fedcal.storage.artifact import Artifact, Holdout
from fedcal.storage.atomic import path_of
from fedcal.training.networks import enlist, network_named, text_of


class TrainedModel(Artifact):
    """Trained model, as saved in `model.npz`.

    Parameters
    ----------
    network
        its name, see `network_named`
    shape
        of one input
    classes
        of the model
    w
        (size,) weights
    """

    form: ClassVar[str] = "model"
    noun: ClassVar[str] = "model"

    def __init__(self, network: str, shape: tuple[int, ...], classes: int, w: Floats) -> None:
        self.network, self.shape, self.classes = network, shape, classes
        self.w = np.array(w, np.float64)
        self.architecture = network_named(network)
        size = self.architecture.size(shape, classes)
        same(f"shape of the weights of {network}", self.w.shape, (size,))

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Network, shape, classes and weights."""
        return {
            "network": np.array(self.network),
            "shape": np.array(self.shape),
            "classes": np.array(self.classes),
            "w": self.w,
        }

    @classmethod
    @override
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        shape = tuple(int(side) for side in np.atleast_1d(arrays["shape"]))
        return cls(str(arrays["network"]), shape, int(arrays["classes"]), arrays["w"])

    def predict(self, inputs: NDArray[Any]) -> Floats:
        """(n, ...) inputs -> (n, classes) logits.

        Raises InputError if they are not of the shape that the model was trained on.
        """
        same("shape of the model's inputs", inputs.shape[1:], self.shape)
        return self.architecture.logits(self.w, inputs, self.classes)

    def write_state_dict(self, path: Path) -> None:
        """Write the weights as the state dict of the module, in float32, for `torch.load`."""
        import torch

        from fedcal.training.local_sgd import set_weights

        module = self.architecture.module(self.shape, self.classes, 0)
        set_weights(module, self.w)
        torch.save(module.state_dict(), path)

    @override
    def results(self) -> dict[str, Any]:
        return {
            "model": {
                "network": self.network,
                "shape": list(self.shape),
                "classes": self.classes,
                "weights": int(self.w.size),
            }
        }

    @override
    def page(self) -> list[Part]:
        facts = (
            ("network", self.network),
            ("reads inputs of shape", text_of(self.shape)),
            ("classes", f"{self.classes:,}"),
            ("weights", f"{self.w.size:,}"),
        )
        return [Table("Network", ("", ""), facts)]

    def judge(self, test: Holdout) -> dict[str, Any]:
        """Metrics on test rows that it reads, from inputs or from logits: `after`, as fractions."""
        inputs = test.logits if test.inputs is None else test.inputs
        if inputs.shape[1:] != self.shape:
            return {}
        return {"after": summary(softmax(self.predict(inputs)), test.labels)}


def load_model(path: str | Path, model: Any = None) -> TrainedModel:
    """Load the model in a file that a run left (`model.npz`).

    Parameters
    ----------
    model
        the module of the user's own that was trained (`fedcal.train`), or its `module:Class`:
        the file has its weights and its name, and a name alone imports nothing

    Raises
    ------
    InputError
        If the file cannot be read, holds something else, is of a later version, or holds arrays
        that do not fit together.
    """
    named = {} if model is None else {"network": np.array(enlist(model))}
    return TrainedModel.load(path_of(path), **named)
