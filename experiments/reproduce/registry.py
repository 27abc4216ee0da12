"""The table of experiments. A new one is a line here and a TOML file; see the package."""

from __future__ import annotations

from fedcal.checks import one_of
from fedcal.experiments.reproduce.spec import Experiment, read_experiment

EXPERIMENTS = (
    "maddock-table2",
    "maddock-table3",
    "maddock-figure2",
    "maddock-figure3",
    "maddock-table6",
    "maddock-table7",
    "private-temperature",
    "fedtemp-bound",
    "amplification",
    "binning-pays",
    "audit",
    "luo-table1",
    "luo-table7",
    "luo-figures",
)
"""Names on the command line, in the order of the list; each is `experiments/configs/NAME.toml`."""


def experiment(name: str) -> Experiment:
    """The experiment of that name.

    Raises
    ------
    InputError
        There is none; the message lists those that there are.
    """
    return read_experiment(one_of("experiment", name, EXPERIMENTS))
