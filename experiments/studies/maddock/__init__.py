"""Maddock et al., "Private federated calibration": claims of its grids, and Tables 6 and 7.

Its tables and figures are grids (`maddock.toml`); `claims` tells what is said of them. `costs`
measures what a client sends and computes.
"""
