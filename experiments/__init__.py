"""The papers, benchmarks and the making of data: run from a clone, not in the wheel."""
