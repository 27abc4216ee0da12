"""The next step from noisy answers, as functions of arrays."""
