"""Training of models by noisy gradients: networks, exact gradient sums, optimisers, the model."""

from __future__ import annotations
