"""Check the folder that a command writes to, and say what the command may replace there.

A folder that holds results is refused unless it is to be overwritten, and then what the command's
own kind left there is replaced as a whole, exports of it included. What another command left is
never replaced, and a file that is not fedcal's is neither replaced nor deleted.
"""

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from fedcal.core import checks, printable
from fedcal.core.errors import FedcalError, InputError, Interrupted
from fedcal.experiments.report.figures import COMPARISON_NAMES, CURVE_NAMES, NAMES
from fedcal.experiments.runs.files import PAGE, check_out, write_folder
from fedcal.storage.artifact import ARTIFACTS
from fedcal.strategies.server.checkpoint import CHECKPOINT, WAITING
from fedcal.strategies.server.job import Job
from fedcal.strategies.server.outcome import OUTCOME, ROUND_FILES, Outcome

_CONFIG, _REPORT = "config.toml", "report.html"
_MOST_NAMED = 3
_MOST_BYTES = 2**28

_OF_A_RUN = (
    *("result.json", _CONFIG, "rounds.jsonl", _REPORT, PAGE, "test_probs.npy", "reliability.json"),
    *(*NAMES, *CURVE_NAMES, OUTCOME, ROUND_FILES),
)


@dataclass(frozen=True)
class Kind:
    """A kind of result folder.

    Attributes
    ----------
    what
        it holds, in words
    marks
        file by which one knows it -> a key that this file has
    names
        patterns of all files that the command leaves, when it is finished
    unfinished
        files that say that it is not: the command itself says how to go on
    """

    what: str
    marks: Mapping[str, str]
    names: tuple[str, ...]
    unfinished: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """Patterns of all files that it may leave, those of the artifacts of a run among them."""
        forms = ARTIFACTS.values() if OUTCOME in self.names else ()
        artifacts = {name for form in forms for name in form.files()}
        return (*self.names, *self.unfinished, *sorted(artifacts))


RUN = Kind("a run", {"result.json": "privacy", OUTCOME: "records"}, _OF_A_RUN)
DEPLOYED = Kind("a run over real sites", {"result.json": "privacy"}, _OF_A_RUN, ("run.json",))
COMPARISON = Kind(
    "a comparison",
    {"compare.json": "cells"},
    ("compare.json", _CONFIG, "table.csv", "table.md", _REPORT, ".inputs.json", *COMPARISON_NAMES),
    ("rows.jsonl",),
)
SUITE = Kind("a suite", {"suite.json": "cells"}, ("suite.json", _CONFIG), ("rows.jsonl",))
TRAINING = Kind(
    "a training",
    {"training.json": "parameters", OUTCOME: "records"},
    (
        *("training.json", _CONFIG, "logits.npz", "model.pt", _REPORT, PAGE),
        *(*CURVE_NAMES, OUTCOME, ROUND_FILES),
    ),
    (CHECKPOINT,),
)
READING = Kind(
    "a release that was read again",
    {"reading.json": "statement"},
    ("reading.json", _REPORT, PAGE, *CURVE_NAMES),
)
AT_HOME = Kind(
    "a recalibration at home",
    {"result.json": "verdict"},
    ("result.json", "calibrator.npz", _REPORT, PAGE, *CURVE_NAMES),
)
QUARTER = Kind(
    "a quarter of a study",
    {"study.json": "sites"},
    (
        *("study.json", "study.toml", "study.sealed", "ledger.json", "signature.json"),
        *("release.npz", "earlier-*.npz", _REPORT, *CURVE_NAMES),
    ),
)
KINDS = (RUN, DEPLOYED, COMPARISON, SUITE, TRAINING, READING, AT_HOME, QUARTER)


class Replaced(UserWarning):
    """Results that will be replaced."""


_NO_REPORT = "a run that is paid for and has no report yet (fedcal report makes it)"


def claim(
    out: Path, kind: Kind, *, overwrite: bool = False, resume: bool = False, report: bool = True
) -> None:
    """Refuse, before anything is computed or charged, a folder that cannot take the results.

    With `overwrite` a line says what will be replaced.

    Parameters
    ----------
    kind
        of the results
    overwrite
        replace results of this kind
    resume
        the command goes on with what is there, and says itself where it cannot
    report
        a report will be written, too

    Raises
    ------
    InputError
        The folder holds results, or files that are not fedcal's under the names of results; it
        cannot be written; or a package that a report needs is missing.
    """
    from fedcal.experiments.report.page import check_report

    check_out(out)
    if report:
        check_report()
    there = sorted(out.iterdir()) if out.is_dir() else []
    names = {path.name for path in there}
    for another in KINDS:
        for name in {*another.marks, *another.unfinished} - {*kind.marks, *kind.unfinished}:
            if name in names:
                raise InputError(
                    f"--out {out} holds {name} of another command ({another.what}); choose another "
                    "folder"
                )
    if resume:
        return
    own = files_of(out, kind)
    contents = {name: _read(out / name) for name in kind.marks}  # perhaps another program's
    present = [n for n, c in contents.items() if isinstance(c, dict) and kind.marks[n] in c]
    begun = [name for name in kind.unfinished if name in names]
    if not present and not begun:
        if own:
            raise InputError(
                f"--out {out} holds {_names(own)}, unknown files: move them away, or choose "
                "another folder"
            )
        return
    what = f"{kind.what}, unfinished"
    if present:
        method = contents[present[0]].get("method")
        what = f"{kind.what} of {method}" if isinstance(method, str) else kind.what
        what = _NO_REPORT if present[0] == OUTCOME else what
    if not overwrite:
        if present:
            raise InputError(
                f"--out {out} holds {what}: --overwrite replaces it, or choose another folder"
            )
        return
    stay = [p for p in there if p not in own and not p.name.startswith(".")]
    beside = f"; {_names(stay)} in it stays" if stay else ""
    message = f"{out} holds {what}, which is replaced ({len(own)} files){beside}"
    warnings.warn(message, Replaced, stacklevel=3)


def files_of(out: Path, kind: Kind) -> list[Path]:
    """Return the files named as a kind of results in a folder; InputError if one is a folder."""
    files = [
        path
        for path in (sorted(out.iterdir()) if out.is_dir() else ())
        if any(fnmatch(path.name, pattern) for pattern in kind.files)
    ]
    for path in files:
        if path.is_dir():
            raise InputError(f"cannot write results to {out}: {path.name} in it is a folder")
    return files


def claim_file(out: Path, *, overwrite: bool) -> None:
    """InputError for a file that is there and is not to be overwritten."""
    if out.exists() and not overwrite:
        raise InputError(f"--out {out} exists: --overwrite replaces it, or choose another name")


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes()) if path.stat().st_size <= _MOST_BYTES else None
    except (OSError, ValueError, RecursionError):
        return None


def _names(paths: Sequence[Path]) -> str:
    return printable.listed([path.name for path in paths], most=_MOST_NAMED)


CONFIG = "config.toml"

Run = Callable[[], Outcome]


@dataclass
class ReleaseStore:
    """Keeps the outcome of a run.

    Attributes
    ----------
    out
        folder of the results; None = nothing is kept
    kind
        of these
    config
        text of the run's options
    resume
        take the outcome that is there, and run nothing
    known
        whether the folder holds the outcome
    """

    out: Path | None
    kind: Kind
    config: str
    resume: bool = False
    known: bool = False

    def outcome(self, job: Job, run: Run) -> Outcome:
        """Run a job and keep its outcome, or read the one that is kept.

        Raises
        ------
        InputError
            There is none, or it is that of another job.
        FedcalError
            It cannot be written.
        """
        if self.out is None:
            return run()
        if self.resume:
            outcome = _kept(self.out, job)
        else:
            outcome = replace(run(), job=job.to_fields())
            write_folder(
                self.out,
                lambda folder: self._write(folder, outcome),
                stale={*self.kind.files} - {*self.kind.unfinished},
            )
        self.known = True
        return outcome

    def _write(self, folder: Path, outcome: Outcome) -> None:
        (folder / CONFIG).write_text(self.config, "utf-8")
        outcome.save(folder)

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Say that the outcome is kept, and how to go on, if no result can be made from it.

        Raises
        ------
        FedcalError
            What went wrong.
        Interrupted
            On Ctrl-C.
        """
        try:
            yield
        except (Exception, KeyboardInterrupt) as error:
            if not self.known:
                raise
            again = (
                f"the release is in {self.out}: fedcal report {self.out} makes the report at no "
                "cost"
            )
            if isinstance(error, KeyboardInterrupt):
                raise Interrupted(again) from None
            own = isinstance(error, FedcalError)
            message = f"{error}" if own else f"{type(error).__name__}: {error}"
            raise FedcalError(f"{message}; {again}") from error


def _kept(out: Path, job: Job) -> Outcome:
    outcome, now = Outcome.load(out), job.to_fields()
    for key in sorted({*outcome.job, *now} - {*WAITING}):
        checks.same(f"{key} of the run of {out / OUTCOME}", now.get(key), outcome.job.get(key))
    return outcome
