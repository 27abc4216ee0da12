"""Levels of noisy counts from which their thresholds cover enough."""
