"""Calibrators and prediction sets for other runtimes: PyTorch modules, and ONNX files.

What is exported takes what it was fitted on, as `predict_proba`, `predict_set` and `fedcal apply`
do: logits if their `input` is "logits", probabilities if it is "probs".
"""

from fedcal.export.targets import to_onnx, to_torch

__all__ = ["to_onnx", "to_torch"]
