"""The split by a keyed hash: each row by itself, and no other row moves."""

import numpy as np

from fedcal.partition import held_out


def test_a_part_follows_from_the_id_alone():
    ids = np.arange(5000)
    whole = held_out(ids, 7, 0.1)
    assert 0.085 < whole.mean() < 0.115  # 3.5 standard deviations
    rng = np.random.default_rng(0)
    some = rng.permutation(5000)[:700]
    np.testing.assert_array_equal(held_out(ids[some], 7, 0.1), whole[some])
    # a neighbour, without row 13: one part loses that row, the other stays as it is
    without = np.delete(ids, 13)
    parts = [set(rows[held_out(rows, 7, 0.1)]) for rows in (ids, without)]
    rest = [set(rows[~held_out(rows, 7, 0.1)]) for rows in (ids, without)]
    assert (parts[0] ^ parts[1]) | (rest[0] ^ rest[1]) == {13}


def test_neighbouring_ids_and_other_keys_are_independent():
    drawn = np.array([held_out(np.arange(4000), key, 0.5) for key in range(8)]).astype(float)
    assert np.abs(np.corrcoef(drawn) - np.eye(8)).max() < 0.08  # 5 / sqrt(4000)
    assert abs(np.corrcoef(drawn[0, :-1], drawn[0, 1:])[0, 1]) < 0.08
