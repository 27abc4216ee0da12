"""A trained model: its network and its weights, in one file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray

from fedcal.core.errors import InputError
from fedcal.core.numerics import softmax
from fedcal.core.pages import Part, Table
from fedcal.core.types import Floats, override
from fedcal.storage.artifact import FORMAT, Arrays, Artifact, Header, Holdout, read_arrays
from fedcal.storage.atomic import path_of
from fedcal.training.deep import Deep
from fedcal.training.network import text_of
from fedcal.training.networks import network_named
from fedcal.training.own import enlist


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
        if self.w.shape != (size,):
            raise InputError(f"the network {network} has {size} weights, got {self.w.shape}")

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
        if inputs.shape[1:] != self.shape:
            raise InputError(
                f"the model reads inputs of shape {text_of(self.shape)}, got "
                f"{text_of(inputs.shape[1:])}"
            )
        return self.architecture.logits(self.w, inputs, self.classes)

    def write_state_dict(self, path: Path) -> None:
        """Write the weights of a network of PyTorch as its state dict, in float32."""
        from fedcal.training.torch_models import write_state_dict

        module = cast(Deep, self.architecture).module(self.shape, self.classes, 0)
        write_state_dict(module, self.w, path)

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
        """Metrics on test rows that it reads: `after`, as fractions."""
        from fedcal.training.model_card import scored

        probs = self._probs(test)
        return {} if probs is None else {"after": scored(probs, test.labels)}

    def judged_page(self, test: Holdout) -> list[Part]:
        """Return metrics, reliability, confidence, classes and groups of the test rows."""
        from fedcal.training.model_card import card_parts

        probs = self._probs(test)
        return [] if probs is None else card_parts({"model": probs}, test)

    def _probs(self, test: Holdout) -> Floats | None:
        """Return probabilities of the test rows, from inputs or from logits."""
        inputs = test.logits if test.inputs is None else test.inputs
        return softmax(self.predict(inputs)) if inputs.shape[1:] == self.shape else None


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

    def made(header: Header, arrays: Arrays) -> TrainedModel:
        if header["form"] != TrainedModel.form:
            raise InputError("does not contain a model")
        named = {} if model is None else {"network": np.array(enlist(model))}
        return TrainedModel.from_arrays({**arrays, **named})

    return read_arrays(path_of(path), FORMAT, ("form",), made, TrainedModel.form)
