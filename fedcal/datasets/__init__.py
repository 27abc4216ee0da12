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
from fedcal.datasets._arrays import from_arrays as from_arrays
from fedcal.datasets._blocks import BLOCKS as BLOCKS
from fedcal.datasets._blocks import BlockRows as BlockRows
from fedcal.datasets._blocks import Population as Population
from fedcal.datasets._blocks import are_blocks as are_blocks
from fedcal.datasets._blocks import in_blocks as in_blocks
from fedcal.datasets._dataset import IDS as IDS
from fedcal.datasets._dataset import KEYS as KEYS
from fedcal.datasets._dataset import Dataset as Dataset
from fedcal.datasets._dataset import by_name as by_name
from fedcal.datasets._load import FeatureSet as FeatureSet
from fedcal.datasets._load import catalogue as catalogue
from fedcal.datasets._load import feature_sets as feature_sets
from fedcal.datasets._load import from_frame as from_frame
from fedcal.datasets._load import is_shipped as is_shipped
from fedcal.datasets._load import load as load
from fedcal.datasets._load import read_feature_set as read_feature_set
from fedcal.datasets._load import shifted as shifted
from fedcal.datasets.model_scores import from_model as from_model

if not TYPE_CHECKING:
    __getattr__ = partial(refuse, __name__)
