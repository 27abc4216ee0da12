"""Training of models by noisy gradients: networks, exact gradient sums, optimisers, the model."""
