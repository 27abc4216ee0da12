"""`fedcal train`: run, show, write."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcal.experiments.config import read_toml
from fedcal.experiments.files import to_json
from fedcal.experiments.terminal import SHOWN, console, progress, shown


def run_train(
    options: Mapping[str, Any],
    config_file: Path | None,
    out: Path | None,
    *,
    resume: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """`fedcal train`."""
    from fedcal.experiments.training.run import Training, train

    given = {} if config_file is None else read_toml(config_file)
    given |= {k: v for k, v in options.items() if v is not None}
    with progress("reading", quiet=quiet) as steps:

        def moved(done: int, total: int, record: dict[str, Any]) -> None:
            told = f"loss {record['train_loss']:.3f}"
            if "test_accuracy" in record:
                told += f", test accuracy {100 * record['test_accuracy']:.2f} %"
            steps(done, total, told)

        training: Training = train(out=out, resume=resume, progress=moved, **given)
    if as_json:
        print(to_json(training.to_json()), end="")
    elif not quiet:
        _show(training.to_json(), out)


def _show(training: Mapping[str, Any], out: Path | None) -> None:
    to = console()
    c, rows = training["config"], training["rows"]
    to.print(
        f"{c['model']} ({training['parameters']:,} parameters) on {c['data']}, clients "
        f"{training['clients']}, {c['partition']}, rounds {c['rounds']}, "
        f"sampling rate {c['sampling_rate']:g}"
    )
    to.print(
        f"{rows['train']:,} training rows, {rows['calibration']:,} for calibration, "
        f"{rows['test']:,} for testing"
    )
    metrics = ", ".join(f"{SHOWN[k]} {shown(k, training['test'][k])}" for k in SHOWN)
    to.print(f"test rows: {metrics}; {training['seconds']:.1f} s")
    if out is not None:
        to.print(
            f"written to {out}; calibrate it: fedcal simulate --data {out / 'logits.npz'} "
            "--partition natural"
        )
