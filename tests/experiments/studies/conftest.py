"""Data files that studies run on."""

import numpy as np
import pytest


@pytest.fixture(scope="session")
def data_file(tmp_path_factory):
    """Writes a data file of three classes with a test part; gives its path."""
    folder = tmp_path_factory.mktemp("data")

    def write(name: str, n: int = 400) -> str:
        rng = np.random.default_rng(5)
        labels = rng.integers(0, 3, n)
        logits = 3 * rng.normal(size=(n, 3)) + 3 * np.eye(3)[labels]
        fit, test = slice(n // 2), slice(n // 2, None)
        arrays = {"logits": logits[fit], "labels": labels[fit]}
        arrays |= {"test_logits": logits[test], "test_labels": labels[test]}
        np.savez(folder / name, **arrays)
        return str(folder / name)

    return write
