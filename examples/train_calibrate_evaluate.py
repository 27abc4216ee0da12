"""Train with DP-SGD, calibrate, make prediction sets and evaluate: every release on one ledger.

The ledger adds up what is spent for each row and refuses, before anything is released, a run that
would exceed its cap. Budgets add up whatever rows the runs read, so the calibration may read rows
that the model was trained on. On the command line each step has the same --ledger and --cap:
`fedcal train`, `fedcal simulate --method dp-ts`, `--method conformal`, `fedcal evaluate`.

    python examples/train_calibrate_evaluate.py [FOLDER]
"""

import sys
from pathlib import Path

from fedcal import BudgetExceeded, evaluate, prediction_sets, simulate, train
from fedcal.privacy.ledger import Ledger

CAP, CAP_DELTA = 8.0, 1e-4


def main(folder: Path) -> None:
    charged = {"ledger": str(folder / "ledger.sqlite"), "cap": CAP, "cap_delta": CAP_DELTA}

    training = train(
        data="adult-features",
        method="fedsgd",
        epsilon=5.0,
        delta=1e-5,
        rounds=60,
        set={"clip": 0.1, "lr": 80.0},
        out=folder / "model",
        **charged,
    )
    print(f"accuracy of the model on test rows: {training.metrics['accuracy']:.3f}")

    # all that follows reads what the training wrote: logits of the rows held out, and test rows
    logits = folder / "model" / "logits.npz"
    rows = {"partition": "natural", "unit": "example", **charged}

    out = folder / "calibrated"
    calibrated = simulate(logits, method="dp-ts", epsilon=1.0, out=out, report=False, **rows)
    before, after = (look["ece"] for look in (calibrated.before, calibrated.after))
    print(f"calibration error on test rows: {before:.3f}, calibrated {after:.3f}")

    calibrator = out / "calibrator.npz"
    sets = prediction_sets(logits, alpha=0.1, calibrator=calibrator, epsilon=1.0, **rows)
    print(f"prediction sets cover {sets.after['coverage']:.3f} of the test rows")

    # numbers above are exact, for who owns the test rows; this one is a release about them
    rows |= {"partition": "iid", "clients": 10}  # Adult's test rows have no owners
    evaluated = evaluate(logits, calibrator=calibrator, score="confidence", epsilon=1.0, **rows)
    ece = evaluated.evaluated["metrics_after"]["ece"]
    value, low, high = ece["value"], ece["low"], ece["high"]
    print(f"calibration error, released: {value:.3f} ({low:.3f} to {high:.3f})")

    with Ledger(charged["ledger"]) as ledger:
        for entry in ledger.entries():
            print(f"{entry.epsilon:8.4g} at delta {entry.delta:7.2g}  {entry.event}")
        epsilon, delta = ledger.spent()
    print(f"{epsilon:8.4g} at delta {delta:7.2g}  in all, of {CAP:g} at delta {CAP_DELTA:g}")

    try:
        evaluate(logits, epsilon=1.0, seed=1, **rows)
    except BudgetExceeded as refusal:
        print(f"once more? {refusal}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "stages"))
