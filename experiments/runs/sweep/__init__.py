"""Many runs: in this process, in others or on Ray, kept in a folder that can be resumed."""

from fedcal.experiments.runs.sweep.journal import Folder, begun_config
from fedcal.experiments.runs.sweep.pools import Row, Run, Sources, Work, digest_of, key_of, pool_of
from fedcal.experiments.runs.sweep.run import run_all

__all__ = [
    "Folder",
    "Row",
    "Run",
    "Sources",
    "Work",
    "begun_config",
    "digest_of",
    "key_of",
    "pool_of",
    "run_all",
]
