"""What to compare: lists of values, method variants, and the cells that they span."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, make_dataclass, replace
from itertools import pairwise, product
from typing import Any

from fedcal.core import checks, streams
from fedcal.core.errors import InputError
from fedcal.core.fields import Count
from fedcal.core.options import RUNNING, SITES, Option, Options, layered, option, options_of
from fedcal.experiments.report.families import family_of
from fedcal.experiments.runs.config import POOLED, Config, label_of, method_named, parse_setting
from fedcal.partition import parse as parse_partition
from fedcal.privacy.federation import Federation
from fedcal.privacy.noise_plan import Plan
from fedcal.privacy.privacy import Privacy
from fedcal.strategies.settings import Setting, calibrating, exact_only, settings_of
from fedcal.trust import NOISY, TRUSTS, SecAgg

_OPTIONS = options_of(Config)
AXES = tuple(name for name, option in _OPTIONS.items() if option.axis)
"""Options that take a list; every combination is a cell."""

_NOT_GRID = "its file holds what to compare, not where it is computed; give --{}"
_OF_LEDGER = "it belongs to a ledger, and compare takes none"
_SIMULATED = "it is about real sites, and a comparison is a simulation"

ALONE: Mapping[str, str] = {
    **{name: _SIMULATED for name, option in _OPTIONS.items() if option.group == SITES},
    "ledger": "a ledger is for one population, and a comparison deals the same rows anew for each "
    "partition and seed; the table states the sum of its runs instead",
    **dict.fromkeys(("cap", "cap_delta"), _OF_LEDGER),
    **{name: _NOT_GRID.format(name.replace("_", "-")) for name in ("engine", "ray_address")},
}
"""Options of single runs alone -> why a comparison takes none."""

_SHARED = {
    name: option.default
    for name, option in _OPTIONS.items()
    if not option.axis and name not in {*ALONE, "set"}
}
"""What all runs have alike, with its default."""

_NOT_PRIVACY = ("partition", "clients", "rounds", "sampling_rate")
"""Axes in the order of the table, between the data and the privacy."""


def comparable() -> tuple[str, ...]:
    """Return the methods compared by default: those that calibrate, and the baselines."""
    return (*calibrating(), *POOLED)


@dataclass(frozen=True)
class Variant:
    """A method with parameters of its own, as in `fedbbq[weighting=none,bins_exponent=5]`."""

    method: str
    settings: Mapping[str, Setting] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Variant:
        """Parse `METHOD` or `METHOD[KEY=VALUE,...]`; `;` separates as `,` does.

        A label is taken as well, as `FedBBQ (weighting=none)`.
        """
        match = re.fullmatch(r"([^][()]+)(?:\[([^][()]*)\]|\(([^][()]*)\))?", text.strip())
        if match is None:
            raise InputError(f"a method is METHOD or METHOD[KEY=VALUE,...], got {text!r}")
        method, inside = method_named(match[1]), match[2] if match[3] is None else match[3]
        settings: dict[str, Setting] = {}
        for pair in () if inside is None else re.split("[;,]", inside):
            key, value = parse_setting(pair)
            if key in settings:
                raise InputError(f"{key!r} occurs twice in {text!r}")
            settings[key] = value
        return cls(method, settings)

    @property
    def text(self) -> str:
        """Text form that `parse` takes."""
        return self.method + (f"[{self._pairs(',')}]" if self.settings else "")

    @property
    def label(self) -> str:
        """Label in tables."""
        return label_of(self.method) + (f" ({self._pairs(', ')})" if self.settings else "")

    @property
    def baseline(self) -> bool:
        """True if it reads the rows themselves, without a federation."""
        return self.method in POOLED

    @property
    def dealt(self) -> bool:
        """True if its result depends on how the rows were partitioned."""
        return self.method not in POOLED or self.method == "one-source"

    def resolved(self) -> tuple[str, tuple[tuple[str, Setting], ...]]:
        """Equal for variants that mean the same: defaults that are spelt out do not count."""
        defaults = {k: p.default for k, p in settings_of(self.method).items()}
        own = {k: v for k, v in self.settings.items() if k not in defaults or defaults[k] != v}
        return self.method, tuple(sorted(own.items()))

    def _pairs(self, comma: str) -> str:
        return comma.join(
            f"{k}={str(v).lower() if isinstance(v, bool) else v}" for k, v in self.settings.items()
        )


@dataclass(frozen=True)
class Cell:
    """One line of the table: a configuration, run with each of its seeds.

    `delta` is what each of its private runs spends, `plan` that of its first run, `little` says
    why it is unlikely to help ("" if it has enough); known once the cell is resolved.
    """

    variant: Variant
    config: Config
    seeds: tuple[int, ...]
    delta: float = 0.0
    plan: Plan | None = None
    little: str = ""

    @property
    def name(self) -> str:
        """Name that identifies it in an error message."""
        c = self.config
        if self.variant.baseline:
            return f"{self.variant.text} on {c.data}"
        return f"{self.variant.text} on {c.data}, {c.partition}, epsilon {c.epsilon:g}"

    @property
    def protection(self) -> tuple[str, ...]:
        """Requested values of the options that may exclude each other, in words."""
        c = self.config
        asked = {"epsilon": f"{c.epsilon:g}", "unit": c.unit, "trust": c.trust}
        asked["mechanism"] = None if c.mechanism == "auto" else c.mechanism
        return tuple(f"{k} {v}" for k, v in asked.items() if v is not None)


def _many(name: str) -> Any:
    """Return the field of an axis: for most, a tuple of the option's own default."""
    if name == "method":
        return field(default_factory=lambda: tuple(Variant(m) for m in comparable()))
    return field(default=(math.inf, 1.0) if name == "epsilon" else (_OPTIONS[name].default,))


_Values: Any = make_dataclass(
    "_Values",
    [(name, tuple, _many(name)) for name in AXES]
    + [(name, object, field(default=default)) for name, default in _SHARED.items()],
    bases=(Options,),
    frozen=True,
    kw_only=True,
)


@dataclass(frozen=True, kw_only=True)
class Grid(_Values):  # type: ignore[misc]  # made of the fields of `Config`
    """Every axis with its values, and what all runs share; see `compare` for the meaning.

    None stands for "the method's (or the data's) own", as in `Config`. The fields are those of
    `Config`, `seeds` (how many, from `seed` on) and `set`; an axis holds a tuple.
    """

    seeds: Count = option(5, RUNNING, "How many, from --seed on")
    set: Mapping[str, Setting] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "mechanism", tuple(dict.fromkeys(self.mechanism)))
        for variant in self.method:
            Config(method=variant.method, set=variant.settings)
        family_of(variant.method for variant in self.method)
        streams.check_seed(self.seed + self.seeds - 1)
        for trust in self.trust:  # also where epsilon leaves no use for it
            Federation(1, 2, epsilon=min(self.epsilon) if trust in NOISY else math.inf, trust=trust)
        if not any(_shared(trust) for trust in self.trust):
            Privacy(quorum=self.quorum).check_quorum(protocol=False)
        known = {key: None for v in self.method for key in settings_of(v.method)}
        for key in self.set:
            checks.one_of("--set of these methods", key, known)
        for axis in AXES:
            seen: dict[Any, str] = {}
            for value in getattr(self, axis):
                text, same = str(value), value
                if axis == "method":
                    text, same = value.text, value.resolved()
                elif axis == "partition":
                    same = parse_partition(value)
                if same in seen:
                    also = "" if seen[same] == text else f" ({seen[same]!r} means the same)"
                    raise InputError(f"{axis} {text!r} occurs twice{also}")
                seen[same] = text

    def drafts(self, split_by_seed: Mapping[str, bool]) -> Iterator[Cell]:
        """All cells in the order of the table, not yet resolved.

        Parameters
        ----------
        split_by_seed
            name of the data -> whether its test part follows from the seed
        """
        seeds = tuple(range(self.seed, self.seed + self.seeds))
        for data in self.data:
            undealt = seeds if split_by_seed[data] else seeds[:1]
            deals = [{"partition": p, "clients": c} for p in self.partition for c in self.clients]
            for dealt, places in ((False, [dict[str, Any]()]), (True, deals)):
                for place, variant in product(places, self.method):
                    if variant.baseline and variant.dealt == dealt:
                        config = Config(data=data, method=variant.method, seed=self.seed, **place)
                        yield Cell(variant, config, seeds if dealt else undealt)
            for values in product(*(getattr(self, name) for name in _NOT_PRIVACY)):
                known = {"data": data, **dict(zip(_NOT_PRIVACY, values, strict=True))}
                for epsilon in self.epsilon:
                    for privacy in self._privacies(epsilon):
                        for variant in self.method:
                            if not variant.baseline:
                                yield Cell(variant, self._config(variant, known | privacy), seeds)

    def _privacies(self, epsilon: float) -> Iterator[dict[str, Any]]:
        """Budgets, units, trusts and mechanisms; without privacy there is one of each.

        With privacy all combinations, also those that cannot be; but where epsilon = inf is in the
        grid, trust secagg is meant for that.
        """
        if math.isinf(epsilon):
            trust = SecAgg.name if SecAgg.name in self.trust else None
            exact = {"epsilon": epsilon, "delta": self.delta[0], "unit": self.unit[0]}
            yield exact | {"trust": trust, "mechanism": Config.mechanism}
            return
        noisy = tuple(t for t in self.trust if t != SecAgg.name)
        trusts = noisy if noisy and math.inf in self.epsilon else self.trust
        names = ("epsilon", "delta", "unit", "trust", "mechanism")
        for values in product((epsilon,), self.delta, self.unit, trusts, self.mechanism):
            yield dict(zip(names, values, strict=True))

    def _config(self, variant: Variant, values: Mapping[str, Any]) -> Config:
        """One value of each axis, and what all runs share; a quorum where a trust has one."""
        known = settings_of(variant.method)
        own = {**{k: v for k, v in self.set.items() if k in known}, **variant.settings}
        alike = {name: getattr(self, name) for name in _SHARED}
        if not _shared(values["trust"]):
            alike["quorum"] = Config.quorum
        return Config(method=variant.method, **values, **alike, set=own)

    def to_dict(self) -> dict[str, Any]:
        """Plain values without the unset ones; infinity stays a float."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        plain |= {"method": [v.text for v in self.method], "set": dict(self.set)}
        return {
            name: list(value) if name in AXES else value
            for name, value in plain.items()
            if value is not None and value != (None,)
        }

    def what_differs(self, earlier: Grid) -> list[str]:
        """Why finished runs of an `earlier` grid cannot be part of this one; empty = they can."""
        lines = []
        now, then = self.to_dict(), earlier.to_dict()
        for key in sorted(now | then):
            new, old = now.get(key), then.get(key)
            grown = key == "seeds" and self.seeds >= earlier.seeds
            if key in AXES and new is not None and old is not None:
                grown = frozenset(old) <= frozenset(new)
            if new != old and not grown:
                lines.append(f"{key} was {_shown(old)} and is {_shown(new)}")
        return lines


def _shown(value: Any) -> str:
    if value is None:
        return "the default"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def read_grid(*layers: Mapping[str, Any]) -> Grid:
    """Return a grid from several layers of options, later ones winning; `set` tables are joined.

    Raises
    ------
    InputError
        An unknown option, a list that is empty or names something twice, a value that is not
        allowed.
    """
    given = {key.replace("-", "_") for layer in layers for key in layer}
    for name, why in ALONE.items():
        checks.unused(why, **{name: True if name in given else None})
    known = {n: o for n, o in _OPTIONS.items() if n not in ALONE} | options_of(Grid)
    grid = Grid(**layered(known, *layers, read=_value))
    named = [v.method for v in grid.method]
    if {*comparable()} <= {*named} and not any(map(math.isinf, grid.epsilon)):  # "all" that can be
        methods: Any = {"method": tuple(v for v in grid.method if v.method not in exact_only())}
        return replace(grid, **methods)
    return grid


def _value(option: Option, value: Any) -> Any:
    if not option.axis:
        return option.checked(value)
    if isinstance(value, str):
        listed: Sequence[Any] = split_list(option.name, value)
    elif isinstance(value, Sequence):
        listed = value
    else:
        listed = [value]
    checks.whole(f"the length of the list {option.name}", len(listed), 1)
    if option.name == "method":
        listed = [m for entry in listed for m in (comparable() if entry == "all" else (entry,))]
    return tuple(_entry(option, entry) for entry in listed)


def _entry(option: Option, value: Any) -> Any:
    if option.name == "method":
        return Variant.parse(value if isinstance(value, str) else option.checked(value))
    if option.kind is not str and isinstance(value, str):
        with suppress(ValueError):  # what is not a number is refused next
            value = checks.number_in(value, option.kind)
    return option.checked(value)


def split_list(name: str, text: str) -> list[str]:
    """Split at commas that are in no brackets; InputError for an empty entry."""
    cuts, depth = [-1], 0
    for place, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            cuts.append(place)
        if depth < 0:
            break
    listed = [text[a + 1 : b].strip() for a, b in pairwise([*cuts, len(text)])]
    if depth or not all(listed):
        raise InputError(f"{name}: brackets do not match in {text!r}, or an entry is empty")
    return listed


def _shared(trust: str | None) -> bool:
    """Return whether noise comes in shares, and a quorum of clients must answer."""
    return trust in TRUSTS and TRUSTS[trust].shared
