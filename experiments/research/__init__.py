"""Experiments of the papers, benchmarks, and the making of shipped data; no product imports it."""
