"""Estimates of metrics from counts of rows by score and outcome, a module each."""
