"""The file of a study, `NAME.toml`: all that a person edits. What else there is follows from it.

Policies, committee, quorum, the question and the epsilon of each release are computed here, by
coordinator and sites alike: so a site that has accepted a study refuses nothing that it asks, and
whatever changes in its terms has another digest.
"""

from __future__ import annotations

import datetime
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import tomli_w

from fedcal.clients.site.policy import REQUIRED
from fedcal.core.checks import one_of, positive, whole
from fedcal.core.classes import class_names, digest_of
from fedcal.core.errors import InputError
from fedcal.evaluation.sites.effects import CUTS
from fedcal.experiments.deploy.fleet import read_address
from fedcal.experiments.runs.config import Config
from fedcal.experiments.runs.evaluated import METHOD
from fedcal.experiments.runs.jobs import job_of
from fedcal.mechanisms import DiscreteLaplace
from fedcal.metrics.buckets import check_score
from fedcal.privacy.noise_plan import Plan
from fedcal.queries.encodings import Flat
from fedcal.secure_aggregation import keys
from fedcal.secure_aggregation.committee import EVERYBODY_UP_TO, Committee, default_threshold
from fedcal.secure_aggregation.roster import Member, Roster, check_name
from fedcal.storage.toml_files import check_keys, read_as
from fedcal.trust import Distributed
from fedcal.units import UNITS, Example, Subject

MOST_BYTES = 1 << 20
PROTECTED = {
    **dict.fromkeys(("patient", "customer", "person"), Subject.name),
    "record": Example.name,
}
"""Who is protected, in a study's words -> unit."""

PLURAL = {"person": "people"}
DELTA = 1e-9
"""Of a release, at most: what the arithmetic of exact noise may add to a pure epsilon."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_NEAR = 0.4  # log odds by which a cut is moved to a threshold
_MOST_THRESHOLDS = 5


@dataclass(frozen=True)
class Model:
    """Whose probabilities are judged: table `[model]`.

    Attributes
    ----------
    classes
        names, in the order of the columns
    name, version
        as reports name it; rows of another version are another study's
    positive
        of two classes the one that probabilities are of; "" = the second
    thresholds
        of its probability, that are of interest; of two classes only
    rate
        about how often the positive class occurs (of more classes: how often a prediction is
        wrong), in public; `study check` alone uses it
    """

    classes: tuple[str, ...]
    name: str = "the model"
    version: str = "1"
    positive: str = ""
    thresholds: tuple[float, ...] = ()
    rate: float = 0.5


@dataclass(frozen=True)
class Study:
    """What is asked, of whom, and what it may cost.

    Attributes
    ----------
    study
        its name, and that of its files
    question
        that the report answers, as a sentence
    contributors
        people as the report names them
    server
        HOST:PORT at which sites find the server
    model
        see `Model`
    sites
        name -> about how many of those protected it has in a release, in public; 0 = not said
    protect
        one of `PROTECTED`
    epsilon
        of one of those protected, in a year
    per_year
        releases in a year
    since, years
        from when on, and for how long
    groups
        names of groups of rows (column `group`) that are counted apart at each site
    away, colluding
        sites that may be missing in a release; sites that may work with whoever runs the server
    """

    study: str
    model: Model
    sites: Mapping[str, int]
    server: str
    question: str = ""
    contributors: tuple[str, ...] = ()
    protect: str = "patient"
    epsilon: float = 4.0
    per_year: int = 4
    since: datetime.date = field(default_factory=lambda: datetime.datetime.now(datetime.UTC).date())
    years: int = 1
    groups: tuple[str, ...] = ()
    away: int = -1
    colluding: int = -1

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.study):
            raise InputError(
                f"study must be letters, digits and . _ - (at most 40), got {self.study[:80]!r}"
            )
        read_address("server", self.server)
        one_of("protect", self.protect, PROTECTED)
        positive("epsilon", self.epsilon)
        whole("per-year", self.per_year, 1, 366)
        whole("years", self.years, 1, 100)
        self._check_sites()
        self._check_model()
        for name, value, most in (
            ("away", self.away, len(self.sites) - 2),
            ("colluding", self.colluding, self._most_colluding),
        ):
            if value != -1:
                whole(name, value, 0, most)
        for group in self.groups:
            check_name("a group's name", group)

    def _check_sites(self) -> None:
        whole("the number of sites", len(self.sites), 2, 1000)
        for name, about in self.sites.items():
            if not _NAME.fullmatch(name):
                raise InputError(
                    f"a site's name must be letters, digits and . _ -, got {name[:80]!r}"
                )
            whole(f"{self.plural} of {name}", about, 0)

    def _check_model(self) -> None:
        model = self.model
        whole("the number of classes", len(model.classes), 2)
        class_names(model.classes, len(model.classes))
        if len(model.classes) != 2:
            for name in ("positive", "thresholds"):
                if getattr(model, name):
                    raise InputError(f"{name} of [model] is for two classes")
            return
        if model.positive:
            one_of("positive of [model]", model.positive, model.classes)
        whole("the number of thresholds", len(model.thresholds), 0, _MOST_THRESHOLDS)
        for at in (*model.thresholds, model.rate):
            if not 0 < at < 1:
                raise InputError(f"thresholds and rate of [model] lie in (0, 1), got {at:g}")

    # --- as a file --------------------------------------------------------------------------

    @classmethod
    def read(cls, path: Path) -> Self:
        """The study of a file; InputError, one line that names the file and what is wrong."""
        return read_as(path, MOST_BYTES, cls.of)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The study of such a file's text; InputError if it is none."""
        try:
            table = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError):
            raise InputError("the text of the study is not TOML") from None
        return cls.of(table)

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Self:
        """The study of the tables of a file."""
        own = [*_TYPES, "model", "sites"]
        check_keys("a study", table, own)
        for name in ("study", "server", "model", "sites"):
            if name not in table:
                raise InputError(f"{name!r} is missing")
        model, sites = table["model"], table["sites"]
        if not isinstance(model, dict) or not isinstance(sites, dict):
            raise InputError("[model] and [sites] must be tables")
        check_keys("[model]", model, _MODEL)
        given = {
            name.replace("-", "_"): _typed(name, table[name], _TYPES[name])
            for name in table
            if name in _TYPES
        }
        named = {name: _typed(name, model[name], _MODEL[name]) for name in model}
        if "classes" not in named:
            raise InputError("'classes' of [model] is missing")
        about = {str(name): _typed(name, value, int) for name, value in sites.items()}
        return cls(model=Model(**named), sites=about, **given)

    def to_toml(self) -> str:
        """The text of a file that `read` takes, with a comment at each line that needs one."""
        lines = []
        for name, comment in _COMMENTS.items():
            value = getattr(self, name.replace("-", "_"))
            value = {"away": self.may_be_away, "colluding": self.may_collude}.get(name, value)
            lines += [*(f"# {line}" for line in comment.format(self=self).splitlines() if line)]
            lines.append(_line(name, value))
        lines += ["", "[model]"]
        lines += [_line(name, getattr(self.model, name)) for name in _MODEL]
        lines += [
            "",
            f"# About how many {self.plural} each has in a release: a public number.",
            "# Only `fedcal study check` uses it; 0 = not said.",
            "[sites]",
        ]
        lines += [_line(name, about) for name, about in self.sites.items()]
        return "\n".join(lines) + "\n"

    # --- what is agreed ---------------------------------------------------------------------

    @cached_property
    def terms(self) -> str:
        """Canonical JSON of all that a site accepts: what changes here must be accepted again."""
        model = {k: v for k, v in vars(self.model).items() if k != "rate"}
        told = {name: getattr(self, name) for name in _TERMS} | {
            "away": self.may_be_away,
            "colluding": self.may_collude,
            "model": model,
            "since": self.since.isoformat(),
            "sites": list(self.sites),
        }
        return json.dumps(told, sort_keys=True, separators=(",", ":"))

    @property
    def digest(self) -> str:
        """SHA-256 of the terms, 64 hexadecimal digits."""
        return keys.digest("study", self.terms.encode()).hex()

    @property
    def class_digest(self) -> str:
        """Of the names of the classes, as sites compare it."""
        return digest_of(class_names(self.classes, len(self.classes)))

    @property
    def federation(self) -> str:
        """Name of its roster: it holds the digest of the terms, so the roster's digest does."""
        return f"{self.study[:28]} {self.digest[:32]}"

    def roster(self, of: Mapping[str, bytes]) -> Roster:
        """Who takes part, by the Ed25519 public key of each site; InputError if one is missing."""
        if missing := [name for name in self.sites if name not in of]:
            raise InputError(f"no key of {', '.join(missing)}: their .join files are missing")
        members = tuple(Member(name, of[name]) for name in self.sites)
        return Roster(self.federation, members, self.committee, self.class_digest)

    @property
    def committee(self) -> Committee:
        """Who opens sums: the first sites, up to seven."""
        size = min(len(self.sites), EVERYBODY_UP_TO)
        return Committee.of_first(size, default_threshold(size))

    @property
    def may_be_away(self) -> int:
        """Sites that may be missing in a release."""
        sites = len(self.sites)
        return min(max(1, sites // 5), sites - 2) if self.away == -1 else self.away

    @property
    def quorum(self) -> int:
        """Fewest sites in a release."""
        return len(self.sites) - self.may_be_away

    @property
    def _most_colluding(self) -> int:
        return max(min(self.committee.colluding, self.quorum - 2), 0)

    @property
    def may_collude(self) -> int:
        """Sites that may work with whoever runs the server, and it still learns noisy sums."""
        return min(1, self._most_colluding) if self.colluding == -1 else self.colluding

    @property
    def unit(self) -> str:
        """Of privacy."""
        return PROTECTED[self.protect]

    @property
    def plural(self) -> str:
        """Those protected, in words."""
        return PLURAL.get(self.protect, f"{self.protect}s")

    @property
    def epsilon_release(self) -> float:
        """Of one release: epsilons add up over a year."""
        return self.epsilon / self.per_year

    @property
    def until(self) -> datetime.date:
        """The last day, in UTC, on which sites answer."""
        days = datetime.timedelta(days=round(365.25 * self.years))
        return self.since + days

    def year(self, day: datetime.date) -> int:
        """The number of a day's year in the study, from 1 on; InputError outside of it."""
        if not self.since <= day <= self.until:
            raise InputError(f"{self.study} is from {self.since} until {self.until}, not on {day}")
        return min(int((day - self.since).days / 365.25) + 1, self.years)

    @property
    def releases(self) -> int:
        """In all."""
        return self.per_year * self.years

    @property
    def epsilon_total(self) -> float:
        """Of all releases."""
        return self.epsilon * self.years

    # --- the question -----------------------------------------------------------------------

    @property
    def score(self) -> str:
        """What is binned."""
        return check_score("", len(self.model.classes))

    @property
    def classes(self) -> tuple[str, ...]:
        """Names in the order in which the question has them: of two the positive one is last."""
        last = self.model.positive or self.model.classes[-1]
        return (*(name for name in self.model.classes if name != last), last)

    @property
    def cuts(self) -> tuple[float, ...]:
        """Inner edges of the buckets: nine for the least noise, moved to thresholds near them."""
        cuts = CUTS[self.score].tolist()
        for threshold in self.model.thresholds:
            at = float(np.log(threshold / (1 - threshold)))
            near = min(cuts, key=lambda cut: abs(cut - at))
            if abs(near - at) < _NEAR and near not in map(_log_odds, self.model.thresholds):
                cuts.remove(near)
            cuts.append(at)
        edges = {round(float(1 / (1 + np.exp(-cut))), 6) for cut in cuts}
        edges |= set(self.model.thresholds)
        return tuple(sorted(edges))

    @property
    def threshold(self) -> float:
        """Of predictions, where a single one is wanted."""
        return self.model.thresholds[0] if self.model.thresholds else 0.5

    @property
    def settings(self) -> dict[str, Any]:
        """Of the method; each is named by a run and pinned by a policy."""
        asked: dict[str, Any] = {
            "by": "site",
            "cuts": list(self.cuts),
            "encoding": Flat.name,
            "groups": list(self.sites),
        }
        if self.groups:
            asked["within"] = list(self.groups)
        return asked | ({"threshold": self.threshold} if self.score == "positive" else {})

    def config(self, **more: Any) -> Config:
        """The run of one release."""
        return Config(
            method=METHOD,
            class_names=",".join(self.classes),
            clients=len(self.sites),
            epsilon=self.epsilon_release,
            unit=self.unit,
            trust=Distributed.name,
            mechanism=DiscreteLaplace.name,
            secure_aggregation=REQUIRED,
            quorum=(self.quorum - 0.5) / len(self.sites),
            colluding=self.may_collude,
            set=self.settings,
            **more,
        )

    @cached_property
    def plan(self) -> Plan:
        """Of a release, as the server and each site make it."""
        return job_of(self.config(), None).plan

    def policy(self, federation: str) -> dict[str, Any]:
        """The tables of a site's `site.toml`: all that the study asks, and nothing else.

        Parameters
        ----------
        federation
            digest of the roster, which the site has compared
        """
        committee = self.committee
        pinned = {
            name: [v, v] if isinstance(v, float) else [_text(v)]
            for name, v in self.settings.items()
        }
        return {
            "federation": federation,
            "class-digest": self.class_digest,
            "expires": self.until,
            "methods": [METHOD],
            "unit": [self.unit],
            "trust": [Distributed.name],
            "adjacency": [UNITS[self.unit].adjacency(False)],
            "rounds": 1,
            "epsilon-per-run": self.epsilon_release,
            "epsilon-total": self.epsilon_total,
            "delta-per-run": DELTA,
            "delta-total": DELTA * self.releases,
            "secure-aggregation": REQUIRED,
            "answers": self.quorum,
            "colluding": self.may_collude,
            "committee": [[len(committee.members), committee.threshold]],
            "settings": {METHOD: pinned},
        }


def _log_odds(share: float) -> float:
    return float(np.log(share / (1 - share)))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


_TYPES: Mapping[str, type] = {
    "study": str,
    "question": str,
    "contributors": tuple,
    "server": str,
    "protect": str,
    "epsilon": float,
    "per-year": int,
    "since": datetime.date,
    "years": int,
    "groups": tuple,
    "away": int,
    "colluding": int,
}
_MODEL: Mapping[str, type] = {
    "name": str,
    "version": str,
    "classes": tuple,
    "positive": str,
    "thresholds": tuple,
    "rate": float,
}
_TERMS = ("study", "protect", "epsilon", "per_year", "years", "groups")
_COMMENTS = {
    "study": "A study: whose model, who is asked, and what that may cost. `fedcal study check` "
    "says\nwhat it will show. Sites accept it; what changes after that they accept again.",
    "question": "As the report asks it.",
    "contributors": "As the report names them.",
    "server": "",
    "protect": "patient, customer or person: all rows of one (column `subject`); or record: a row.",
    "epsilon": "What may be learnt of one {self.protect} in a year; each release costs "
    "{self.epsilon_release:g}.",
    "per-year": "",
    "since": "",
    "years": "",
    "groups": "Names in the column `group`, counted apart at each site; [] = none.",
    "away": "So many sites may be missing in a release.",
    "colluding": "So many sites may work with whoever runs the server.",
}


def _typed(name: str, value: Any, kind: type) -> Any:
    """A value of a file as its field has it, or InputError."""
    if kind is tuple and isinstance(value, list):
        kinds = (int, float) if name == "thresholds" else (str,)
        if all(isinstance(one, kinds) and not isinstance(one, bool) for one in value):
            return tuple(map(float, value)) if name == "thresholds" else tuple(value)
    elif kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    elif type(value) is kind:
        return value
    word = {tuple: "a list", str: "a text", int: "a whole number", float: "a number"}
    raise InputError(f"{name} must be {word.get(kind, 'a day, as 2026-10-01')}, got {value!r:.80}")


def _line(name: str, value: Any) -> str:
    """`name = value` as TOML has it, in one line."""
    key = tomli_w.dumps({name: 0}).partition("=")[0].strip()
    many = isinstance(value, tuple)
    texts = [tomli_w.dumps({"v": one})[4:].strip() for one in (value if many else [value])]
    return f"{key} = [{', '.join(texts)}]" if many else f"{key} = {texts[0]}"


def sites_of(text: str) -> dict[str, int]:
    """Sites by comma, each NAME or NAME=ABOUT; InputError for anything else."""
    found: dict[str, int] = {}
    for part in text.split(","):
        name, _, about = part.strip().partition("=")
        if name in found:
            raise InputError(f"--sites names {name!r} twice")
        if about and not about.isdecimal():
            raise InputError(f"--sites: {part.strip()!r} is neither NAME nor NAME=NUMBER")
        found[name] = int(about or 0)
    return found


def named(names: Sequence[str]) -> str:
    """Names as a sentence has them."""
    return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1]
