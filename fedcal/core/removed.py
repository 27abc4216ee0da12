"""What earlier versions had, and what to use instead: a row for each name, in its user's words."""

from __future__ import annotations

from fedcal.core.errors import InputError

REMOVED = {
    "fedcal pipeline": (
        "run the commands train, simulate and evaluate with one --ledger "
        "(examples/train_calibrate_evaluate.py)"
    ),
    "fedcal features": "make features with your own code: .npz with features and labels",
    "--model linear": "use softmax",
    **dict.fromkeys(
        ("--model cnn", "--model resnet18", "--model lstm"),
        "use a torch.nn.Module of your own, MODULE:CLASS",
    ),
}
"""Name -> what to use instead."""


def check_kept(name: str) -> None:
    """Raise InputError for a name that was removed; it says what to use instead."""
    if name in REMOVED:
        raise InputError(f"{name} was removed in 0.3: {REMOVED[name]}")
