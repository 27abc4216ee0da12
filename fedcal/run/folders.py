"""Check the folder that a command writes to, and say what the command may replace there.

A folder that holds results is refused unless it is to be overwritten, and then what the command's
own kind left there is replaced as a whole, exports of it included. What another command left is
never replaced, and a file that is not fedcal's is neither replaced nor deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcal.core import checks, naming, pages
from fedcal.core.checks import FedcalError, InputError, Interrupted
from fedcal.results import page
from fedcal.results.figures import COMPARISON_NAMES, CURVE_NAMES, NAMES
from fedcal.results.files import PAGE, check_out, to_json, write_folder
from fedcal.storage.artifact import ARTIFACTS, CHECKPOINT, OUTCOME, ROUND_FILES
from fedcal.storage.atomic import path_of

if TYPE_CHECKING:  # with Flower, which a check at home does without
    from fedcal.strategies.server.job import Job
    from fedcal.strategies.server.outcome import Outcome

CONFIG = "config.toml"

_PAGES = (page.FILE, PAGE, *CURVE_NAMES)
_OF_A_RUN = (
    *("rounds.jsonl", "test_probs.npy", "reliability.json", *NAMES),
    *("calibrator.onnx", "sets.onnx"),
)
_PAID = (CONFIG, OUTCOME, ROUND_FILES)


@dataclass(frozen=True)
class Kind:
    """A kind of result folder.

    Attributes
    ----------
    what
        it holds, in words
    marks
        file by which one knows it -> a key that this file has; the first holds its record
    names
        patterns of the other files that the command leaves, when it is finished
    page
        module and function that make a page of the record, given the folder and where it will lie
    unfinished
        files that say that it is not: the command itself says how to go on
    """

    what: str
    marks: Mapping[str, str]
    names: tuple[str, ...]
    page: str = ""
    unfinished: tuple[str, ...] = ()

    @property
    def record(self) -> str:
        """Name of the file that holds its record."""
        return next(iter(self.marks))

    @property
    def files(self) -> tuple[str, ...]:
        """Patterns of all files that it may leave, those of the artifacts of a run among them."""
        forms = ARTIFACTS.values() if OUTCOME in self.names else ()
        artifacts = {name for form in forms for name in form.files()}
        return (*self.marks, *self.names, *self.unfinished, *sorted(artifacts))

    def write(
        self,
        out: str | Path,
        record: Mapping[str, Any],
        parts: Sequence[pages.Part] | None = None,
        beside: Callable[[Path], None] | None = None,
        *,
        report: bool = True,
        private: bool = False,
    ) -> None:
        """Write a result into a folder, in place of what this kind left there: all of it or none.

        Parameters
        ----------
        parts
            of its page; None = the page is made of `record` and what is beside it
        beside
            writes what else belongs to it into a folder
        report
            False leaves the page and its figures to `fedcal report`
        private
            files, and a folder that is made for them, are this user's alone
        """
        home = path_of(out)
        fresh = not home.exists()

        def write(folder: Path) -> None:
            if private and fresh:
                home.chmod(0o700)
            texts = {self.record: record}
            if parts is not None:
                texts[PAGE] = {"schema": 1, "parts": pages.to_json(parts)}
            for name, content in texts.items():
                (folder / name).write_text(to_json(content), "utf-8")
            if beside is not None:
                beside(folder)
            if report:
                write_report(folder, home)
            for path in folder.iterdir() if private else ():
                path.chmod(0o600)

        write_folder(home, write, stale=self.files)


_PAGE_OF = "fedcal.results.simulation:"
RUN = Kind(
    "a run",
    {"result.json": "privacy", OUTCOME: "records"},
    (*_PAGES, *_PAID, *_OF_A_RUN),
    f"{_PAGE_OF}result_page",
)
COMPARISON = Kind(
    "a comparison",
    {"compare.json": "cells"},
    (CONFIG, "table.csv", "table.md", page.FILE, *COMPARISON_NAMES),
    "fedcal.results.comparison:comparison_page",
    ("rows.jsonl",),
)
TRAINING = Kind(
    "a training",
    {"training.json": "parameters", OUTCOME: "records"},
    (*_PAGES, *_PAID, "logits.npz", "model.pt"),
    f"{_PAGE_OF}training_page",
    (CHECKPOINT,),
)
AT_HOME = Kind(
    "a result at home",
    {"result.json": "verdict"},
    (*_PAGES, "calibrator.npz", "calibrator.onnx"),
    f"{_PAGE_OF}result_page",
)
QUARTER = Kind(
    "a quarter of a study",
    {"study.json": "sites"},
    (
        *("study.toml", "study.sealed", "ledger.json", "signature.json"),
        *("release.npz", "earlier-*.npz", *_PAGES),
    ),
)
KINDS = (RUN, COMPARISON, TRAINING, AT_HOME, QUARTER)


Make = Callable[..., page.Page]
"""Makes a page of a record, its folder, and where that will lie."""


def write_report(folder: str | Path, home: Path | None = None, make: Make | None = None) -> Path:
    """Write `report.html` and its figures (PNG, SVG) beside the result files in `folder`.

    Parameters
    ----------
    home
        where the files will lie, if not in `folder`; paths in the report are relative to it
    make
        makes the page, of a kind that names no function here (a quarter of a study)

    Returns
    -------
    Path
        the path of the report

    Raises
    ------
    InputError
        The folder holds no finished result, or not what a command of this version writes.
    FedcalError
        The folder cannot be written.
    """
    folder = path_of(folder)
    pages_of = {kind.record: kind.page for kind in KINDS}
    for name, where in pages_of.items():
        if (make or where) and (folder / name).is_file():
            record = page.read_json(folder / name, name.removesuffix(".json"))
            with page.reading(folder, name):
                if make is None:
                    module, _, function = where.partition(":")
                    make = getattr(import_module(module), function)
                return Path(make(record, folder, home or folder).write(folder))
    raise InputError(f"{folder} holds no result: {', '.join([*pages_of, OUTCOME])}")


def claim(out: Path, kind: Kind, *, overwrite: bool = False, resume: bool = False) -> None:
    """Refuse, before anything is computed or charged, a folder that cannot take the results.

    Parameters
    ----------
    kind
        of the results
    overwrite
        replace results of this kind
    resume
        the command goes on with what is there, and says itself where it cannot

    Raises
    ------
    InputError
        The folder holds results, or files that are not fedcal's under the names of results; it
        cannot be written.
    """
    check_out(out)
    names = sorted(path.name for path in out.iterdir()) if out.is_dir() else []
    for another in KINDS:
        for name in {*another.marks, *another.unfinished} - {*kind.marks, *kind.unfinished}:
            if name in names:
                raise InputError(
                    f"--out {out} holds {name} of another command ({another.what}); choose another "
                    "folder"
                )
    if resume:
        return
    own = [name for name in names if any(fnmatch(name, pattern) for pattern in kind.files)]
    present = [name for name, key in kind.marks.items() if _has(out / name, key)]
    if own and not present and not {*kind.unfinished} & {*own}:  # perhaps another program's
        raise InputError(
            f"--out {out} holds {naming.listed(own, most=3)}, unknown files: move them away, or "
            "choose another folder"
        )
    if present and not overwrite:
        paid = "a run that is paid for and has no report yet (fedcal report makes it)"
        what = paid if present[0] == OUTCOME else kind.what
        raise InputError(
            f"--out {out} holds {what}: --overwrite replaces it, or choose another folder"
        )


def claim_file(out: Path, *, overwrite: bool) -> None:
    """InputError for a file that is there and is not to be overwritten."""
    if out.exists() and not overwrite:
        raise InputError(f"--out {out} exists: --overwrite replaces it, or choose another name")


def _has(path: Path, key: str) -> bool:
    """Return whether a file holds an object of JSON with this key."""
    with suppress(FedcalError):
        content = page.read_json(path)
        return isinstance(content, dict) and key in content
    return False


Run = Callable[[], "Outcome"]


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
        from fedcal.strategies.server.checkpoint import WAITING
        from fedcal.strategies.server.outcome import Outcome

        if self.out is None:
            return run()
        now = job.to_fields()
        if not self.resume:
            outcome = replace(run(), job=now)
            self.keep(outcome)
            return outcome
        outcome = Outcome.load(self.out)
        for key in sorted({*outcome.job, *now} - {*WAITING}):
            what = f"{key} of the run of {self.out / OUTCOME}"
            checks.same(what, now.get(key), outcome.job.get(key))
        self.known = True
        return outcome

    def keep(self, outcome: Outcome) -> None:
        """Write the outcome in place of what the folder holds of this kind."""

        def write(folder: Path) -> None:
            if self.config:
                (folder / CONFIG).write_text(self.config, "utf-8")
            outcome.save(folder)

        if self.out is not None:
            write_folder(self.out, write, stale={*self.kind.files} - {*self.kind.unfinished})
            self.known = True

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
            again = f"the release is in {self.out}, and fedcal report {self.out} makes the report"
            if isinstance(error, KeyboardInterrupt):
                raise Interrupted(again) from None
            kind = "" if isinstance(error, FedcalError) else f"{type(error).__name__}: "
            raise FedcalError(f"{kind}{error}; {again}") from error
