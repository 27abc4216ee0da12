"""What earlier versions had, and what to use instead: a row for each name, in its user's words."""

from __future__ import annotations

from fedcal.core.errors import InputError

REMOVED = {
    "fedcal pipeline": (
        "run the commands train, simulate and evaluate with one --ledger "
        "(examples/train_calibrate_evaluate.py)"
    ),
    "score=margin": "use score=lac",
    "quantile=unary": "omit quantile (gaps serves whole clients under every trust)",
    "--set guarantee": "omit it; sets cover in the mean over releases",
    "--set confidence": "omit it, as guarantee=pac",
    "--set costs": "use by=class, which covers each label by itself",
    "--set among": "use by=class, which covers each label by itself",
    "--set weigh": "omit it; sets are for rows like the clients' rows",
    "--set report": "use groups=..., which covers each group by itself",
}
"""Name -> what to use instead."""


def check_kept(name: str) -> None:
    """Raise InputError for a name that was removed; it says what to use instead."""
    if name in REMOVED:
        raise InputError(f"{name} was removed in 0.3: {REMOVED[name]}")
