"""Intervals of metrics: sampling, noise of the release, and the variance among clients."""
