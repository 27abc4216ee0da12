"""Calibrators and prediction sets for other runtimes: PyTorch, ONNX, files of both.

What is exported takes what it was fitted on, as `predict_proba`, `predict_set` and `fedcal apply`
do: logits if their `input` is "logits", probabilities if it is "probs".
"""

from fedcal.export.targets import save, to_onnx, to_torch

__all__ = ["save", "to_onnx", "to_torch"]
