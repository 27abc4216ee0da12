"""Training of models by noisy gradients: networks, exact gradient sums, the model."""
