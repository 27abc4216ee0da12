"""Groups of rows, and a second model's scores of them: read from everything that holds rows."""

import numpy as np

from fedcal.datasets import from_arrays
from fedcal.partition import deal


def test_they_stay_with_their_rows():
    n = np.arange(101)
    z = np.stack([n, -n], axis=1).astype(float)
    data = from_arrays(logits=z, labels=n % 2, client=n % 5, group=n % 7, other_logits=-z)
    parts = data.split(3)
    np.testing.assert_array_equal(parts.group, parts.scores[:, 0] % 7)
    np.testing.assert_array_equal(parts.test_group, parts.test_scores[:, 0] % 7)
    np.testing.assert_array_equal(parts.other_scores, -parts.scores)
    assert parts.group_names == tuple("0123456")
    for partition, clients in (("natural", None), ("dirichlet:0.5", 9)):
        shards = deal(parts, partition, clients, 0)
        np.testing.assert_array_equal(shards.groups, shards.logits[:, 0] % 7)
        np.testing.assert_array_equal(shards.other, -shards.logits)
        assert shards.group_names == data.group_names
