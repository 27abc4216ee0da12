"""Our work and our peers' in the same run: `python -m experiments.benchmarks`.

Times depend on the machine and on what else it does; the ratios of one run hold up better. Data,
imports and fresh objects are prepared outside the clock, on all sides. Peers that cannot share
our environment have one of their own (`apart`): `make bench` makes it, `FEDCAL_PEERS` names it.
"""
