"""Commands that make shipped data sets from their sources, one module each.

`python -m experiments.shipped.NAME` writes the file, and shows what the model is
worth for each client or group. (`mnist-shift` is made by
`experiments.shift.mnist`.)
"""
