"""The outcome of a run: the artifact, each release, and the bytes sent; kept and written."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeAlias

from fedcal.calibrators import Calibrator, calibrator_of
from fedcal.core.checks import damaged
from fedcal.privacy.curator import Release
from fedcal.storage.artifact import ARTIFACTS, OUTCOME, Artifact
from fedcal.storage.atomic import write_file
from fedcal.strategies.method import Method

Progress: TypeAlias = Callable[[int, int], None]
"""(rounds done, rounds planned)."""


@dataclass(frozen=True)
class Outcome:
    """Result of a federated run.

    Attributes
    ----------
    artifact
        after the last round
    history
        the artifact after each release
    records
        one for each release: round, query, released values, noise_std, and what the artifact
        tells of itself (`temperature`)
    bytes_up, bytes_down
        payload that one client is expected to send and get over the run
    seconds
        of the rounds; None where who is sampled is secret, because it tells how many
    round_seconds
        of each of them; empty there
    run
        what names the run to sites and ledger
    job
        what was run, by Flower's dashed names: budget, unit, trust, ledger, ...; {} of a method
        that nobody was asked for
    sites
        which real sites took part (`Participation.to_result`); None of a simulation
    at_limits
        sentences where a parameter, or a search, ended at an end of its range
    """

    artifact: Artifact
    history: list[Artifact]
    records: list[dict[str, Any]]
    bytes_up: int
    bytes_down: int
    seconds: float | None
    round_seconds: list[float]
    run: str = ""
    job: dict[str, Any] = field(default_factory=dict)
    sites: dict[str, Any] | None = None
    at_limits: list[str] = field(default_factory=list)

    @property
    def calibrator(self) -> Calibrator:
        """The artifact of a method that calibrates; FedcalError of another one."""
        return calibrator_of(self.artifact)

    def save(self, folder: Path) -> None:
        """Write everything into an existing folder, without a loss of a bit.

        `outcome.json` comes last: where it is, all is.
        """
        self.artifact.write(folder, self.artifact.form)
        for number, learnt in enumerate(self.history, 1):
            learnt.write(folder, f"round-{number}")
        plain = {key: value for key, value in vars(self).items() if key not in _ARTIFACTS}
        plain |= {"form": self.artifact.form, "kept": len(self.history)}
        write_file(folder / OUTCOME, json.dumps(plain))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return the saved outcome; InputError if it is missing or incomplete."""
        with damaged(f"{folder} holds no outcome of a run", OSError):
            plain = json.loads((folder / OUTCOME).read_text("utf-8"))
            form, kept = ARTIFACTS[plain.pop("form")], plain.pop("kept")
        history = [form.read(folder, f"round-{number}") for number in range(1, kept + 1)]
        return cls(form.read(folder, form.form), history, **plain)


RELEASED = ("round", "query", "values", "noise_std")
"""Keys of a record; the others are what the artifact tells of itself."""

_ARTIFACTS = ("artifact", "history")


@dataclass
class Watch:
    """Releases of each round of a method, and its artifacts by then."""

    method: Method
    progress: Progress | None
    records: list[dict[str, Any]] = field(default_factory=list)
    history: list[Artifact] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def note(self, release: Release) -> None:
        """Keep a release; `Method.on_release` calls it."""
        self.times.append(time.perf_counter())
        plan, keeps, artifact = self.method.plan, self.method.keeps_releases, self.method.result()
        std = plan.noise_std
        if std is not None and plan.bound is not None and len(release.std):
            # what this round's answers hold: with clients' own noise that depends on their number
            std = tuple(release.std[plan.bound.firsts].tolist())
        record = {
            "query": release.kind,
            "values": release.values.tolist() if keeps else [],
            "noise_std": None if std is None else list(std),
        }
        of = self.method.round_record
        if not keeps:  # releases of an earlier process, which nobody kept, count all the same
            missed = range(len(self.records) + 1, release.round)
            self.records += [{"round": number, **record, **of(number)} for number in missed]
        facts = {**artifact.record(), **of(release.round)}
        self.records.append({"round": release.round, **record, **facts})
        if keeps:
            self.history.append(artifact)
        if self.progress is not None:
            self.progress(len(self.records), plan.rounds)
