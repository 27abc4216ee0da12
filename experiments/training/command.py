"""`fedcal train`: run, show, write."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from fedcal.experiments.commands import Stopped
from fedcal.experiments.config import read_toml
from fedcal.experiments.files import to_json
from fedcal.experiments.terminal import SHOWN, progress_bar, shown


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
    from fedcal.experiments.training.run import Interrupted, Training, train

    given = {} if config_file is None else read_toml(config_file)
    given |= {k: v for k, v in options.items() if v is not None}
    with progress_bar() as bar:
        task = bar.add_task("reading", total=None, visible=not quiet)

        def moved(done: int, total: int, record: dict[str, Any]) -> None:
            told = f"loss {record['train_loss']:.3f}"
            if "test_accuracy" in record:
                told += f", test accuracy {100 * record['test_accuracy']:.2f} %"
            bar.update(task, completed=done, total=total, description=told)

        try:
            training: Training = train(out=out, resume=resume, progress=moved, **given)
        except Interrupted as e:
            if out is None or not e.round:
                raise KeyboardInterrupt from None
            raise Stopped(
                f"{e.round} rounds are kept; go on: fedcal train --out {out} --resume"
            ) from None
    if as_json:
        print(to_json(training.to_json()), end="")
    elif not quiet:
        _show(training.to_json(), out)


def _show(training: Mapping[str, Any], out: Path | None) -> None:
    console = Console(markup=False, emoji=False, highlight=False, soft_wrap=True)
    c, rows = training["config"], training["rows"]
    console.print(
        f"{c['model']} ({training['parameters']:,} parameters) on {c['data']}, clients "
        f"{training['clients']}, {c['partition']}, rounds {c['rounds']}, "
        f"sampling rate {c['sampling_rate']:g}"
    )
    console.print(
        f"{rows['train']:,} training rows, {rows['calibration']:,} for calibration, "
        f"{rows['test']:,} for testing"
    )
    metrics = ", ".join(f"{SHOWN[k]} {shown(k, training['test'][k])}" for k in SHOWN)
    console.print(f"test rows: {metrics}; {training['seconds']:.1f} s")
    if out is not None:
        console.print(
            f"written to {out}; calibrate it: fedcal simulate --data {out / 'logits.npz'} "
            "--partition natural"
        )
