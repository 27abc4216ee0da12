"""Calibrators for other runtimes: a PyTorch module, an ONNX model, files of both.

An exported calibrator takes what it was fitted on, as `predict_proba` and `fedcal apply` do:
logits if `calibrator.input` is "logits", probabilities if it is "probs".
"""

from __future__ import annotations

from fedcal.export.targets import save, to_onnx, to_torch

__all__ = ["save", "to_onnx", "to_torch"]
