"""`fedcal evaluate`: how good a model is, by a run, or read again from an earlier one's release."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from fedcal.errors import InputError
from fedcal.experiments.commands.parameters import (
    FILES,
    ConfigFile,
    Json,
    Quiet,
    Settings,
    other,
    takes,
)
from fedcal.experiments.commands.simulate import run_and_show
from fedcal.experiments.config import Config, load_config, merge, parse_setting
from fedcal.experiments.evaluated import METHOD, evaluates, settings

EVALUATION = "What is evaluated"
AGAIN = "Reading a release again: no run, no charge"


@takes(Config, but=("method",))
def evaluate_command(
    *,
    calibrator: Annotated[
        Path | None, other(EVALUATION, "A calibrator.npz: the model before and after it.")
    ] = None,
    by: Annotated[
        str, other(EVALUATION, "none | site | group: count apart by client, or a column.")
    ] = "none",
    threshold: Annotated[
        float | None, other(EVALUATION, "Predicted positive from this score on (0.5).")
    ] = None,
    score: Annotated[
        str | None,
        other(EVALUATION, "positive | confidence | classes (positive for two classes)."),
    ] = None,
    bins: Annotated[int | None, other(EVALUATION, "Buckets of the score (240).")] = None,
    release: Annotated[Path | None, other(AGAIN, "A release.npz of an earlier run.")] = None,
    precision: Annotated[
        float | None, other(AGAIN, "Find the threshold with this precision.")
    ] = None,
    recall: Annotated[float | None, other(AGAIN, "Find the threshold with this recall.")] = None,
    cost: Annotated[
        float | None,
        other(
            AGAIN,
            "Find the cheapest threshold, where a false positive costs this much "
            "of a false negative.",
        ),
    ] = None,
    calibrate: Annotated[
        str | None, other(AGAIN, "binning | isotonic | platt | beta | bbq: a calibrator, to --out.")
    ] = None,
    since: Annotated[
        Path | None, other(AGAIN, "An earlier release.npz: test whether anything has changed.")
    ] = None,
    set: Settings = None,
    config: ConfigFile = None,
    out: Annotated[
        Path | None, other(FILES, "Folder for result files; with --calibrate the file.")
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
    **options: Any,
) -> None:
    """Run and show it, or read a release again."""
    reading = {
        "precision": precision,
        "recall": recall,
        "cost": cost,
        "calibrate": calibrate,
        "since": since,
    }
    asked = settings(calibrator, by, threshold, score, bins)
    given = {**asked, **dict(map(parse_setting, set or ()))}
    if release is not None:
        _read_again(release, threshold, reading, out, quiet, json)
        return
    for name, value in reading.items():
        if value is not None:
            raise InputError(f"--{name} reads an earlier run's release: give --release FILE")
    run = {**options, "set": given}
    known = merge({"method": METHOD}, run) if config is None else load_config(config, run)
    if not evaluates(known.method):
        raise InputError(
            f"{config} is of method '{known.method}', which evaluates nothing: fedcal simulate "
            "runs it"
        )
    run_and_show(known, out, quiet=quiet, json=json)


def _read_again(
    release: Path,
    threshold: float | None,
    reading: dict[str, Any],
    out: Path | None,
    quiet: bool,
    json: bool,
) -> None:
    raise NotImplementedError
