"""Metrics, each a class that tells its name, heading, value and interval."""
