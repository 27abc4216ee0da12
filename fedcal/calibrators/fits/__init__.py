"""Fits of calibrators: closed forms and numerical minimisation, on arrays."""
