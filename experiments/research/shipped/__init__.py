"""Commands that make shipped data sets from their sources, one module each.

`python -m fedcal.experiments.research.shipped.NAME` writes the file, and shows what the model is
worth for each client or group. (`mnist-shift` is made by
`fedcal.experiments.research.shift.mnist`.)
"""
