"""Commands that make shipped data sets from their sources: `python -m experiments.shipped.NAME`."""
