"""The file of a study, `NAME.toml`: all that a person edits. What else there is follows from it.

Policies, committee, quorum, the question and the epsilon of each release are computed here, by
coordinator and sites alike: so a site that has accepted a study refuses nothing that it asks, and
whatever changes in its terms has another digest.
"""

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
import tomli_w
from scipy.special import expit, logit

from fedcal import mechanisms, trust, units
from fedcal.clients.site.policy import Policy
from fedcal.core import checks
from fedcal.core.naming import class_names, digest_of
from fedcal.evaluation.sites.buckets import FINE
from fedcal.metrics import score_table
from fedcal.privacy import AUTO
from fedcal.privacy.agreement import Terms
from fedcal.privacy.noise_plan import Plan
from fedcal.results.labels import STUDY
from fedcal.results.page import render
from fedcal.run.config import EVERYBODY_UP_TO, Config, default_threshold
from fedcal.run.engines.tls import read_address
from fedcal.run.jobs import METHOD, is_personal, job_of
from fedcal.secure_aggregation import keys
from fedcal.secure_aggregation.roster import Committee, Member, Roster, check_name
from fedcal.storage.toml_files import parse_toml, read_toml, record_of
from fedcal.strategies import STRATEGIES
from fedcal.strategies.server.job import Job
from fedcal.strategies.settings import settings_of

MOST_BYTES = 1 << 20
PROTECTED = {"patient": "patients", "customer": "customers", "person": "people"}
PROTECTED |= {"record": "records"}
"""Word for what a study protects, and its plural."""

DELTA = 1e-9
"""Maximum delta of a release: the arithmetic of exact noise adds no more to a pure epsilon."""

_Setting: TypeAlias = bool | int | float | str | tuple[str, ...] | tuple[float, ...]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
"""Form of the names of studies, sites and quarters."""


def check_file_name(name: str) -> None:
    """InputError for what cannot be the name of a study, a site or a quarter."""
    checks.like("a name", name, NAME, "1 to 40 letters, digits and . _ -")


_NEAR = 0.4  # log odds by which a cut is moved to a threshold
_OF_TWO = {"thresholds": 5, "points": 39}  # of two classes alone, and at most so many
_POINT, _APART = 1e-6, 1e-5  # half a point's bucket, least distance
_MOST_EPSILON = 20  # beyond it promises nothing, and the arithmetic of exact noise gives out


@dataclass(frozen=True)
class Model:
    """Model whose probabilities are evaluated: table `[model]`.

    `classes` are names in the order of the columns; of two the `positive` one is that of the
    probabilities, "" = the last. `thresholds` of its probability are of interest; `points` are
    values that many rows share, such as those of a points score (of two classes). Rows of another
    `version` are another study's. `rate`: about how often the positive class occurs (of more
    classes: how often a prediction is right), in public; the forecast alone uses it.
    """

    classes: tuple[str, ...]
    name: str = "the model"
    version: str = "1"
    positive: str = ""
    thresholds: tuple[float, ...] = ()
    points: tuple[float, ...] = ()
    rate: float = 0.5


@dataclass(frozen=True)
class StudyQuestion:
    """Question of a release: table `[question]`.

    `text` is as the report has it. `method` is one of `fedcal simulate --method`, `settings` are
    its own (`--set`) and `rounds` how many it has (None = its own number). `delta` is of a release,
    for methods whose noise is Gaussian. A site's rows take part in each round with the probability
    `sampling_rate`, by the site's own secret coin.
    """

    text: str = ""
    method: str = METHOD
    rounds: int | None = None
    delta: float = 1e-6
    sampling_rate: float = 1.0
    settings: Mapping[str, _Setting] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """Terms of a study: its question, sites and budget.

    `study` is its name, and that of its files; sites find the server at `server`, HOST:PORT.
    `sites` has about how many of those protected each has in a release, in public (0 = not said);
    `protect` is one of `PROTECTED`. `epsilon` is of one of those, in a year from `since` on, for so
    many `years`, with `per_year` releases. `groups` of rows (column `group`) are counted apart at
    each site. Rows without an outcome or a score are left out at a site, at most a share `missing`
    of its rows. So many sites may be `away` in a release; so many may work with whoever runs the
    server (`colluding`).
    """

    study: str
    model: Model
    sites: Mapping[str, int]
    server: str
    question: StudyQuestion = field(default_factory=StudyQuestion)
    protect: str = "patient"
    epsilon: float = 4.0
    per_year: int = 4
    since: datetime.date = field(default_factory=lambda: datetime.datetime.now(datetime.UTC).date())
    years: int = 1
    groups: tuple[str, ...] = ()
    missing: float = 0.05
    away: int | None = None
    colluding: int | None = None

    def __post_init__(self) -> None:
        for name in (self.study, *self.sites):
            check_file_name(name)
        read_address("server", self.server)
        checks.one_of("protect", self.protect, PROTECTED)
        checks.one_of(
            "method of [question]", self.question.method, STRATEGIES, "fedcal simulate --help"
        )
        checks.positive("epsilon", self.epsilon)
        checks.integer("per-year", self.per_year, 1, 366)
        checks.interval(f"(0, {_MOST_EPSILON}]")("epsilon of a release", self.epsilon_release)
        checks.integer("years", self.years, 1, 100)
        checks.integer("the year of since", self.since.year, 2000, 9000)
        sites = checks.integer("the number of sites", len(self.sites), 2, 1000)
        for name, about in self.sites.items():
            checks.integer(f"{self.plural} of {name}", about, 0, 10**9)
        for group in self.groups:
            check_name("a group's name", group)
        checks.interval("[0, 1)")("missing", self.missing)
        model, classes = self.model, len(self.model.classes)
        class_names(model.classes, checks.integer("the number of classes", classes, 2))
        if classes != 2:
            why = "it is for two classes"
            named = {name: getattr(model, name) or None for name in ("positive", *_OF_TWO)}
            checks.unused(why, **named)
        checks.one_of("positive of [model]", model.positive or model.classes[-1], model.classes)
        for name, most in _OF_TWO.items():
            checks.integer(f"the number of {name}", len(getattr(model, name)), 0, most)
        for at in (*model.thresholds, *model.points, model.rate):
            checks.interval("(0, 1)")("each of thresholds, points and rate of [model]", at)
        for low, high in pairwise((0.0, *model.points, 1.0)):
            checks.interval(f"[{_APART}, 1]")(
                "the distance of points of [model], in order,", high - low
            )
        self._resolve("away", sites - 2, max(1, sites // 5))
        self._resolve("colluding", max(min(self.committee.colluding, self.quorum - 2), 0), 1)

    def _resolve(self, name: str, most: int, usual: int) -> None:
        """Check a number of sites; what was not said is the usual one, as far as can be."""
        value = getattr(self, name)
        object.__setattr__(self, name, min(usual, most) if value is None else value)
        checks.integer(f"{name} (of {len(self.sites)} sites)", getattr(self, name), 0, most)

    # --- as a file --------------------------------------------------------------------------

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the study of a file; InputError, one line that names the file and the mistake."""
        table = read_toml(path, MOST_BYTES)
        with checks.located(str(path)):
            return cls._of(table)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return the study of such a file's text; InputError if it is not one."""
        return cls._of(parse_toml(text.encode(), "the text of the study"))

    @classmethod
    def _of(cls, table: dict[str, Any]) -> Self:
        table.pop("contributors", None)  # of earlier versions, which did not seal it
        return record_of(cls, table, "a study")

    def to_toml(self) -> str:
        """Return the text of a file that `read` takes, with comments."""
        return render("study-file.toml.j2", study=self, toml=_in_toml, key=_key)

    # --- what is agreed ---------------------------------------------------------------------

    @cached_property
    def terms(self) -> str:
        """Canonical JSON of all that a site accepts: what changes here must be accepted again."""
        terms = {name: getattr(self, name) for name in _TERMS}
        terms["model"] = {k: v for k, v in vars(self.model).items() if k != "rate"}
        terms |= {"since": self.since.isoformat(), "sites": list(self.sites)}
        terms["question"] = {k: v for k, v in vars(self.question).items() if k != "text"}
        return json.dumps(terms, sort_keys=True, separators=(",", ":"))

    @property
    def digest(self) -> str:
        """SHA-256 of the terms, 64 hexadecimal digits."""
        return keys.digest("study", self.terms.encode()).hex()

    @property
    def class_digest(self) -> str:
        """Digest of the names of the classes, as sites compare it."""
        return digest_of(class_names(self.classes, len(self.classes)))

    def roster(self, of: Mapping[str, bytes]) -> Roster:
        """Return the roster, by the Ed25519 public key of each site; InputError if one is missing.

        Its name holds the digest of the terms, so the roster's own digest covers these, too.
        """
        why = "a study is sealed with the keys of all its sites"
        members = tuple(
            Member(name, checks.needed(f"the .join file of {name}", of.get(name), why))
            for name in self.sites
        )
        name = f"{self.study[:28]} {self.digest[:32]}"
        return Roster(name, members, self.committee, self.class_digest)

    @property
    def committee(self) -> Committee:
        """Committee that opens sums: the first sites, up to seven."""
        size = min(len(self.sites), EVERYBODY_UP_TO)
        return Committee.of_first(size, default_threshold(size))

    @property
    def quorum(self) -> int:
        """Fewest sites in a release."""
        return len(self.sites) - (self.away or 0)

    def number(self, of: int) -> str:
        """Return a number of protected persons, as in a sentence."""
        return f"{of:,} {self.protect if of == 1 else self.plural}"

    @property
    def unit(self) -> str:
        """Unit of privacy."""
        return (units.Example if self.protect == "record" else units.Subject).name

    @property
    def plural(self) -> str:
        """Word for the protected persons, in the plural."""
        return PROTECTED[self.protect]

    @property
    def subjects(self) -> str:
        """Word for the subjects of rows, in the plural."""
        return self.plural if self.unit == units.Subject.name else "subjects"

    @property
    def epsilon_release(self) -> float:
        """Epsilon of one release: epsilons add up over a year."""
        return self.epsilon / self.per_year

    @property
    def until(self) -> datetime.date:
        """The last day, in UTC, on which sites answer."""
        return self.since + datetime.timedelta(days=round(365.25 * self.years))

    def must_go_on(self) -> None:
        """InputError once the study is over."""
        if datetime.datetime.now(datetime.UTC).date() > self.until:
            raise checks.InputError(
                f"{self.study} ended on {self.until}: see since and years in its file"
            )

    def year(self, day: datetime.date) -> int:
        """Return the number of a day's year in the study, from 1; InputError outside of it."""
        if not self.since <= day <= self.until:
            raise checks.InputError(
                f"{self.study} is from {self.since} until {self.until}, not on {day}"
            )
        return min(int((day - self.since).days / 365.25) + 1, self.years)

    @property
    def epsilon_total(self) -> float:
        """Epsilon of all releases."""
        return self.epsilon * self.years

    # --- the question -----------------------------------------------------------------------

    @property
    def score(self) -> str:
        """Score that is binned."""
        return score_table.check_score("", len(self.model.classes))

    @property
    def classes(self) -> tuple[str, ...]:
        """Names in the order in which the question has them: of two the positive one is last."""
        last = self.model.positive or self.model.classes[-1]
        return (*(name for name in self.model.classes if name != last), last)

    @property
    def cuts(self) -> tuple[float, ...]:
        """Inner edges of the buckets: few for little noise, moved to thresholds and points near.

        Each of the model's points has a bucket of its own.
        """
        cuts, exact = FINE[self.score], {*self.model.thresholds}
        if self.score == "positive" and not exact:
            exact = {0.5}
        for at in (*exact, *self.model.points):
            near = np.abs(cuts - logit(at))
            cuts = np.delete(cuts, near.argmin()) if near.min(initial=np.inf) < _NEAR else cuts
        for at in self.model.points:  # a score of 1/2 counts as below, one at a threshold above
            above = at in self.model.thresholds and at != 0.5
            exact.add(at if above else round(at - _POINT, 9))
            exact.add(0.5 if at == 0.5 else round(at + _POINT, 9))
        edges = np.round(np.asarray(expit(cuts), np.float64), 6)
        return tuple(sorted({*exact, *map(float, edges)}))

    @property
    def evaluates(self) -> bool:
        """True if a release has a verdict for each site: a quarter's report."""
        return self.question.method == METHOD

    @property
    def trains(self) -> bool:
        """True if a release trains a model: rows are features, and no scores."""
        return STRATEGIES[self.question.method].family == "train"

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the method; sites accept each of them."""
        asked, sites = dict(self.question.settings), list(self.sites)
        own: dict[str, Any] = {}
        if self.evaluates:
            own = {"by": "site", "cuts": list(self.cuts), "encoding": score_table.FLAT}
            own |= {"groups": sites} | ({"within": list(self.groups)} if self.groups else {})
            if self.score == "positive":
                own["threshold"] = (*self.model.thresholds, 0.5)[0]
        elif is_personal(self.question.method) or asked.get("groups") == "site":
            own = {"groups": sites}
        elif self.groups and "groups" in settings_of(self.question.method):
            own = {"groups": list(self.groups)}
        for name in own:
            why = "it follows from the study's sites, groups and thresholds"
            checks.unused(why, **{name: None if asked.get(name) == "site" else asked.get(name)})
        return asked | own

    def config(self, **more: Any) -> Config:
        """Return the run of one release."""
        question = self.question
        return Config(
            method=question.method,
            class_names=",".join(self.classes),
            clients=len(self.sites),
            rounds=question.rounds,
            sampling_rate=question.sampling_rate,
            epsilon=self.epsilon_release,
            delta=question.delta,
            unit=self.unit,
            trust=trust.Distributed.name,
            mechanism=mechanisms.Laplace.name if self.evaluates else AUTO,
            secure_aggregation="protocol",
            quorum=(self.quorum - 0.5) / len(self.sites),
            colluding=self.colluding,
            set=self.settings,
            **more,
        )

    def job(self, roster: Roster | None = None, **more: Any) -> Job:
        """Return what the server runs in a release, among the sites of a roster; see `config`.

        Sites with logits and sites with probabilities are asked the same.
        """
        job = job_of(self.config(engine=STUDY, **more), None)
        of: Any = {"input": "logits" if self.trains else "probs"}
        return replace(job, roster="" if roster is None else roster.to_text(), **of)

    @cached_property
    def plan(self) -> Plan:
        """Plan of a release, as the coordinator and each site make it."""
        return self.job().plan

    @property
    def delta_release(self) -> float:
        """Delta of one release, which for exact Laplace noise is that of its arithmetic."""
        return max(self.plan.delta, DELTA)

    def asked(self, roster: Roster) -> Terms:
        """Return what each site of a roster is asked to agree to."""
        return self.job(roster).terms()

    def policy(self, federation: str = "0" * 64) -> Policy:
        """Return a site's policy: for how long, with whom, how much in all.

        Parameters
        ----------
        federation
            digest of the roster, which the site has compared
        """
        return Policy(
            federation,
            begins=self.since,
            expires=self.until,
            epsilon_a_year=self.epsilon,
            epsilon_total=self.epsilon_total,
            delta_a_year=self.delta_release * self.per_year,
            delta_total=self.delta_release * self.per_year * self.years,
            answers=self.quorum,
            colluding=self.colluding or 0,
        )


_TERMS = (
    *("study", "protect", "epsilon", "per_year", "years", "groups", "missing", "away"),
    "colluding",
)


def _in_toml(value: Any) -> str:
    """Return a value as TOML has it, in one line."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(_in_toml, value))}]"
    return tomli_w.dumps({"v": value})[4:].strip()


def _key(name: str) -> str:
    return tomli_w.dumps({name: 0}).partition("=")[0].strip()


def sites_of(text: str) -> dict[str, int]:
    """Sites by comma, each NAME or NAME=ABOUT; InputError for anything else."""
    sites: dict[str, int] = {}
    for part in text.split(","):
        name, _, about = part.strip().partition("=")
        if name in sites or (about and not (about.isascii() and about.isdecimal())):
            raise checks.InputError(
                f"--sites: {part.strip()!r} is neither NAME nor NAME=NUMBER, or occurs twice"
            )
        sites[name] = int(about or 0)
    return sites


def named(names: Sequence[str]) -> str:
    """Names as a sentence has them."""
    return ", ".join(names[:-1]) + " and " * (len(names) > 1) + "".join(names[-1:])
