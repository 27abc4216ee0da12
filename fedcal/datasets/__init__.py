"""Data sets of scores and labels: shipped ones, files, and arrays in memory.

`load("resnet110-cifar10")` reads a shipped set, `load("mnist-shift:fog:5")` a variant of one and
`load("scores.npz")` a file; `from_arrays` takes arrays, `from_frame` a data frame, `from_model` a
fitted model and rows; `in_blocks` leaves the rows of large files where they are. All of them run
the same checks.
Whether scores are logits or probabilities is declared by the caller, never guessed from the values.
`feature_sets` lists shipped sets for training, which hold features, not scores.
"""

from functools import partial
from typing import TYPE_CHECKING

from fedcal.core.checks import refuse
from fedcal.datasets._arrays import from_arrays
from fedcal.datasets._blocks import BLOCKS, BlockRows, Population, are_blocks, in_blocks
from fedcal.datasets._dataset import IDS, KEYS, Dataset, by_name
from fedcal.datasets._load import (
    FeatureSet,
    catalogue,
    feature_sets,
    from_frame,
    is_shipped,
    load,
    read_feature_set,
    shifted,
)
from fedcal.datasets.model_scores import from_model

if not TYPE_CHECKING:
    __getattr__ = partial(refuse, __name__)
