"""The shipped set of four hospitals: who trains, what is missing, what is refused."""

import numpy as np
import pytest

from experiments.shipped import hospitals
from experiments.shipped.hospitals import HOSPITALS

LINE = "63,1,1,145,233,1,2,150,0,2.3,3,0,6,0"


@pytest.fixture
def folder(tmp_path):
    """Patients like UCI's, whose disease follows from their age."""
    rng = np.random.default_rng(0)
    for name in HOSPITALS.values():
        lines = []
        for _ in range(41):
            age = rng.normal(55, 9)
            values = [f"{age:.0f}", *LINE.split(",")[1:-1], str(int(age + rng.normal(0, 5) > 55))]
            lines.append(",".join(values))
        (tmp_path / name).write_text("\n".join(lines))
    return tmp_path


def test_no_patient_who_trained_the_model_is_shipped(folder):
    hospital, *_ = hospitals.read_patients(folder)
    train, fit, test = hospitals.halves(hospital)
    everybody = np.sort(np.concatenate([train, fit, test]))
    np.testing.assert_array_equal(everybody, np.arange(4 * 41))  # disjoint, and nobody is lost
    assert (hospital[train] == 0).all()
    assert len(train) == 20
    assert np.bincount(hospital[fit]).tolist() == [10, 20, 20, 20]
    arrays = hospitals.shipped(folder)
    assert arrays["subject"].tolist() == fit.tolist()
    right = (arrays["logits"][:, 1] > 0) == (arrays["labels"] == 1)
    assert right.mean() > 0.7
