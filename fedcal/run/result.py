"""The result of a federated run: its config, its privacy record, its bytes, and its files."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedcal import calibrators, conformal, datasets, strategies, units
from fedcal.core import checks, numerics, pages
from fedcal.core.naming import names_in
from fedcal.core.options import strict
from fedcal.metrics import Reliability
from fedcal.metrics.bootstrap import FEWEST
from fedcal.results import labels, simulation, statement
from fedcal.results.figures.diagrams import LEGEND, diagram
from fedcal.results.figures.drawing import Sheet
from fedcal.results.files import versions
from fedcal.results.headline import headline
from fedcal.results.labels import APP, STUDY, sentences
from fedcal.results.page import Displayable, Page, Section, block_lines, lines_of, words
from fedcal.run import folders
from fedcal.run.config import Config
from fedcal.storage.artifact import Artifact, Holdout
from fedcal.storage.atomic import path_of
from fedcal.strategies.server.job import Job
from fedcal.strategies.server.outcome import Outcome


def recorded(
    config: Config,
    job: Job,
    outcome: Outcome,
    tested: bool,
    held_out: bool = False,
    partition: str = "natural",
) -> tuple[Config, dict[str, Any]]:
    """Return the resolved config of a federated run, and its privacy record.

    Parameters
    ----------
    config, job, outcome
        what was asked for, what was planned, and what came of it
    tested, held_out
        whether there are test rows here, and whether they were drawn from the clients' rows
    partition
        of a simulation
    """
    plan, name, real = job.plan, "rows_per_client", config.real
    given, strategy = name in config.set, strategies.STRATEGIES[job.method]
    looked = plan.private and name in job.settings and not given
    untold = looked and plan.row_rate == 1 and not statement.sets_noise(plan)
    known = replace(
        config,
        clients=plan.clients,
        rounds=plan.rounds - plan.counting_rounds,
        trust=plan.trust,
        secure_aggregation=job.secure_aggregation,
        noise_source=job.federation.noise_source,
        ledger=str(path_of(config.ledger).resolve()) if config.ledger else None,
        set={k: v for k, v in job.settings.items() if not (untold and k == name)},
    )
    rows: Any = None if untold else job.settings.get(name)  # checked by the strategy
    facts = statement.Facts(
        noun=outcome.artifact.noun,
        tested=tested,
        held_out=held_out,
        guarded=config.engine == STUDY,
        in_app=config.engine == APP,
        counted=config.engine in ("inline", "ray"),
        rows=rows,
        untold=untold,
        unused=given and not strategy.needs_rows(job.federation, job.settings),
        rows_per_subject=int(str(job.settings.get("rows_per_subject", 1))),
        at_home=strategy.family == "personal" and tested and not real,
        partition="" if partition == "natural" else partition,
    )
    privacy = statement.of_plan(plan, len(outcome.records), job.secure_aggregation, facts)
    privacy["more"] += [*outcome.at_limits, *(sentences(outcome.sites) if real else ())]
    return known, privacy


def communication_of(outcome: Outcome) -> dict[str, Any]:
    """Return the payload expected for each client."""
    return {
        "bytes_up_per_client": outcome.bytes_up,
        "bytes_down_per_client": outcome.bytes_down,
        "rounds": len(outcome.records),
    }


def result_of(
    outcome: Outcome,
    config: Config,
    privacy: dict[str, Any],
    *,
    given: Config,
    test: Holdout | None,
    data: datasets.Dataset | datasets.BlockRows | None,
) -> SimulationResult:
    """Return the result of a run.

    Parameters
    ----------
    outcome, config, privacy
        what came of it, its resolved config, and its privacy record
    given
        what was asked for
    test
        rows that judge it here; None = nobody but real sites does
    data
        what the run was on; None with real sites
    """
    names = None if data is None else data.class_names
    if names is None and config.class_names is not None:
        names = names_in(config.class_names)
    artifact = outcome.artifact.under(privacy["statement"])
    shipped = datasets.is_shipped(config.data)
    named = config.data if shipped else Path(config.data).name  # the name tells no path
    artifact.of_data("" if config.real else named)
    for each in (artifact, *outcome.history):
        each.of_classes(names)
    ends = {"at_limits": outcome.at_limits} if outcome.at_limits else {}
    return SimulationResult(
        artifact=artifact,
        evaluated={**artifact.results(), **({} if test is None else artifact.judge(test)), **ends},
        privacy=privacy,
        communication=communication_of(outcome),
        config=config,
        given=given,
        seconds=outcome.seconds,
        versions=versions(),
        rounds=outcome.records,
        test=test,
        data=data if isinstance(data, datasets.Dataset) else None,
        history=outcome.history,
        sites=outcome.sites,
    )


_MOST_EVALUATED = 24
_EVALUATED_ENTRIES = 2 * 10**7  # probabilities computed for them, in all


@dataclass(frozen=True, repr=False)
class SimulationResult(Displayable):
    """Result of a run: artifact, test metrics, privacy and cost.

    Attributes
    ----------
    artifact
        what the run yields
    judged
        what the artifact says of itself on test rows. For the researcher's eyes: exact
        numbers about test rows, not private releases
    privacy
        unit, adjacency, trust, epsilon, delta, mechanism, noise_std, ...
    communication
        payload bytes per client over the whole run, rounds
    config
        resolved; running it again gives the same bits
    given
        what was asked for, and so does this: what follows from other values is left out
    seconds
        of the federated rounds (or the pooled fit); None where who is sampled is secret
    rounds
        one record per release
    test
        the rows that `evaluated` is about; None where nobody has any but real sites: `before` and
        `after` are theirs alone then
    data
        what the run was on; None with real sites
    history
        the artifact after each release
    sites
        which real sites took part; None of a simulation
    """

    artifact: Artifact
    evaluated: dict[str, Any]
    privacy: dict[str, Any]
    communication: dict[str, Any]
    config: Config
    given: Config
    seconds: float | None
    versions: dict[str, str]
    rounds: list[dict[str, Any]]
    test: Holdout | None
    data: datasets.Dataset | None
    history: list[Artifact]
    sites: dict[str, Any] | None = None

    @property
    def metrics(self) -> dict[str, Any]:
        """Metrics of the model from what was released; FedcalError if it was not evaluated.

        Each is a mapping with `value` (None where noise drowns it), `low`, `high` and what the
        width of the interval comes from.
        """
        if "metrics" not in self.evaluated:
            raise checks.Absent("this run evaluates nothing: `fedcal evaluate` gives metrics")
        return dict(self.evaluated["metrics"])

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes, in the order of all columns; None if they have numbers."""
        return self.artifact.class_names

    # -- of a method that calibrates, or gives sets; FedcalError of another one -----------

    @property
    def calibrator(self) -> calibrators.Calibrator:
        """The calibrator, ready for `predict_proba` and `save`."""
        return calibrators.calibrator_of(self.artifact)

    @property
    def sets(self) -> conformal.PredictionSets:
        """The prediction sets, ready for `predict_set`; FedcalError of a run that yields none."""
        if not isinstance(self.artifact, conformal.PredictionSets):
            raise checks.Absent(
                "this run yields no prediction sets: its artifact has the form "
                f"{self.artifact.form}"
            )
        return self.artifact

    @property
    def before(self) -> dict[str, float]:
        """Metrics on the test rows before any calibration, as fractions.

        Of prediction sets coverage and size of the most probable label alone.
        """
        return dict(self._calibration["before"])

    @property
    def after(self) -> dict[str, float]:
        """Metrics on the test rows after it; of prediction sets their coverage, `set_size`, ..."""
        return dict(self._calibration["after"])

    @property
    def intervals(self) -> dict[str, Any] | None:
        """95 % intervals over test rows: see `Calibrator.intervals`."""
        calibrators.calibrator_of(self.artifact)
        intervals: dict[str, Any] | None = self._intervals["intervals"]
        return intervals

    @cached_property
    def reliability(self) -> dict[str, Reliability]:
        """Data of the reliability diagrams of the test rows, `before` and `after`."""
        return self.calibrator.reliability(self._tested)

    @cached_property
    def test_probs(self) -> numerics.Floats:
        """Calibrated probabilities of the test rows, (n, c)."""
        return self.calibrator.test_probs(self._tested)

    @property
    def _calibration(self) -> dict[str, Any]:
        if "before" not in self.evaluated:
            calibrators.calibrator_of(self.artifact)
        return self.evaluated if self._tested else {}

    @property
    def _tested(self) -> Holdout:
        if self.test is None:
            raise checks.Absent("no test rows were given, and the clients keep theirs")
        return self.test

    # -------------------------------------------------------------------------------------

    @cached_property
    def _intervals(self) -> dict[str, Any]:
        return {} if self.test is None else self.artifact.intervals(self.test)

    def to_json(self) -> dict[str, Any]:
        """Return the content of `result.json`: strict JSON, no NaN and no infinity."""
        return {
            "schema": 1,
            "method": self.config.method,
            "config": self.config.to_dict() | {"epsilon": strict(self.config.epsilon)},
            "class_names": None if self.class_names is None else list(self.class_names),
            **self.evaluated,
            **self._intervals,
            **({} if self.sites is None else {"sites": self.sites}),
            "privacy": self.privacy,
            "communication": self.communication,
            "seconds": self.seconds,
            "versions": self.versions,
        }

    def evaluated_rounds(self) -> list[dict[str, Any]]:
        """Return `rounds` with the key `test`: a few test metrics after each release.

        At most 24 rounds are evaluated, and fewer with large test sets; always the last one.
        Like all test metrics they are exact, for the researcher's eyes.
        """
        last = len(self.history) - 1
        if last < 0 or len(self.rounds) != len(self.history) or self.test is None:
            return self.rounds
        most = min(_MOST_EVALUATED, max(2, _EVALUATED_ENTRIES // self.test.probs.size))
        records, many = [*self.rounds], min(most, last + 1)
        for k in {*np.linspace(0, last, many).round().astype(int).tolist()}:
            if glance := (self.artifact if k == last else self.history[k]).glance(self.test):
                records[k] = {**records[k], "test": glance}
        return records

    def __repr__(self) -> str:
        return f"<result: {self.config.method} on {self.config.data}; print() shows it>"

    def __str__(self) -> str:
        """Summarise the result in a few lines."""
        sentences = self.sentences
        ends = sentences["guarantee"], sentences["sent"]
        return "\n".join([sentences["title"], self.verdict, *ends])

    @cached_property
    def sentences(self) -> dict[str, str]:
        """Sentences on the run: its `title`, its `guarantee`, and what a client has `sent`."""
        noun, privacy = labels.of_clients(self.config.engine), self.privacy
        took_part = f"{self.config.clients:,} {noun}"
        if self.sites is not None:
            took_part = labels.in_short(self.sites, noun)
        neighbours = units.UNITS[privacy["unit"]].neighbours.get(privacy["adjacency"])
        lines = words("result", result=self, took_part=took_part, neighbours=neighbours)
        return {name: one for name, (one, *_) in lines.items()}

    def _lines(self) -> list[dict[str, Any]]:
        return lines_of({**self.summary, **self._intervals})

    @property
    def summary(self) -> dict[str, Any]:
        """Results of the artifact on test rows, and the names of the classes."""
        return {**self.evaluated, "class_names": self.class_names}

    @property
    def _own_page(self) -> bool:
        return self.artifact.rescores and self.test is not None

    @property
    def title(self) -> str:
        """First words of the titles of its figures."""
        about = {"method": self.config.method, "config": {"data": self.config.data}}
        return simulation.title_of({**about, "privacy": self.privacy})

    @property
    def verdict(self) -> str:
        """Result of the run in a sentence."""
        return headline(self.record)

    @property
    def parts(self) -> list[Any]:
        """Metrics and reliability of the test rows, or what `page.json` holds."""
        if not self._own_page:
            return [*self.page_parts()]
        panels = tuple(diagram(part, data) for part, data in self.reliability.items())
        sheet = Sheet(f"{self.title}: test rows", 2, panels, LEGEND, "reliability")
        return [labels.metric_table(self.record), sheet]

    def _card(self) -> Page:
        lines = [*self.evaluated.get("coverage_warnings", ()), str(self.privacy["statement"][0])]
        if self._own_page:
            rows = len(self._tested.labels)
            lines = (
                block_lines("simulation", "few", result=self.record, rows=rows, enough=FEWEST)
                + lines
            )
        title = f"{self.config.method} on {self.config.data}"
        return Page(title, self.verdict, [Section("", self.parts)], warnings=lines)

    def page_parts(self) -> list[pages.Part]:
        """Return the artifact's part of a report."""
        shown = self.artifact.page()
        if self.test is not None:
            shown += self.artifact.evaluation_page(self.test)
        return shown

    def save(self, out: str | Path, *, report: bool = True) -> None:
        """Write `result.json` and its companions into the folder `out`; all of them or none.

        An earlier run there is replaced as a whole. Without `report` there are no report and no
        figures, which `fedcal report` makes later.
        """
        parts = None if self._own_page else self.page_parts()
        folders.RUN.write(out, self.to_json(), parts, self._write, report=report)

    def _write(self, folder: Path) -> None:
        (folder / folders.CONFIG).write_text(self.given.to_toml(), "utf-8")
        rounds = (json.dumps(r, allow_nan=False) for r in self.evaluated_rounds())
        (folder / "rounds.jsonl").write_text("".join(f"{line}\n" for line in rounds), "utf-8")
        self.artifact.write(folder, self.artifact.form, self.test)
