"""Metrics, each a class with its name, heading, value and interval."""
