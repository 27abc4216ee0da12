"""The grid of a comparison: lists of values, method variants, and the cells that they span."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, make_dataclass, replace
from functools import cache
from itertools import product
from typing import Any

from fedcal import partition as partitions
from fedcal.core import checks, numerics
from fedcal.core.checks import InputError, NoEffect, TooLittle
from fedcal.core.options import RUNNING, SITES, Count, Option, Options, option, options_of
from fedcal.core.shards import Shards
from fedcal.datasets import Dataset
from fedcal.privacy.noise_plan import Plan
from fedcal.privacy.privacy import Federation
from fedcal.results.labels import family_of
from fedcal.results.statement import large_delta
from fedcal.run import jobs, load
from fedcal.run.config import POOLED, Config, label_of, layered, method_named, parse_setting
from fedcal.strategies.server.job import Job
from fedcal.strategies.settings import Setting, calibrating, fold_preset, settings_of
from fedcal.strategies.warnings import underpowered
from fedcal.trust import NOISY, TRUSTS, SecAgg

_OPTIONS = options_of(Config)
ALONE = {
    *(name for name, option in _OPTIONS.items() if option.group == SITES),
    *("ledger", "cap", "cap_delta", "engine", "ray_address"),
}
"""Options of single runs alone, or of where a comparison is computed: a grid has none of them."""

_SHARED = [n for n, option in _OPTIONS.items() if not option.axis and n not in {*ALONE, "set"}]
"""Options that all runs share."""

_ENDS = ("data", "partition", "method")
_BETWEEN = (n for n, option in _OPTIONS.items() if option.axis and n not in _ENDS)
AXES = (*_ENDS[:2], *_BETWEEN, *_ENDS[2:])
"""Options that take a list, in the order of the table; every combination is a cell."""


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
        """Parse `METHOD` or `METHOD[KEY=VALUE,...]`; `;` separates as `,` does."""
        match = re.fullmatch(r"([^][]+)(?:\[([^][]*)\])?", text.strip())
        if match is None:
            raise InputError(f"a method is METHOD or METHOD[KEY=VALUE,...], got {text!r}")
        method, settings = method_named(match[1]), dict[str, Setting]()
        for pair in () if match[2] is None else re.split("[;,]", match[2]):
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
    def partitioned(self) -> bool:
        """True if its result depends on how the rows were partitioned."""
        return self.method not in POOLED or self.method == "one-source"

    def _pairs(self, comma: str) -> str:
        return comma.join(
            f"{k}={str(v).lower() if isinstance(v, bool) else v}" for k, v in self.settings.items()
        )


@dataclass(frozen=True)
class Cell:
    """One line of the table: a configuration, run with each of its seeds.

    `plan` is that of its first run, `little` says why it has too little data or budget ("" if it
    has enough); known once the cell is resolved.
    """

    variant: Variant
    config: Config
    seeds: tuple[int, ...]
    plan: Plan | None = None
    little: str = ""

    @property
    def name(self) -> str:
        """Name that identifies it in an error message."""
        c = self.config
        return f"{self.variant.text} on {c.data}, {c.partition}, epsilon {c.epsilon:g}"

    @property
    def protection(self) -> tuple[str, ...]:
        """Requested values of the options that may exclude each other, in words."""
        c = self.config
        asked = {"epsilon": f"{c.epsilon:g}", "unit": c.unit, "trust": c.trust}
        asked["mechanism"] = None if c.mechanism == "auto" else c.mechanism
        return tuple(f"{k} {v}" for k, v in asked.items() if v is not None)


def _field(option: Option) -> Any:
    """Return the field of an option: of most axes, a tuple of the option's own default."""
    if option.name == "method":
        return field(default_factory=comparable)
    listed = (math.inf, 1.0) if option.name == "epsilon" else (option.default,)
    return field(default=listed if option.axis and listed != (None,) else option.default)


_Values: Any = make_dataclass(
    "_Values",
    [
        (name, object, _field(_OPTIONS[name]))
        for name in (*filter(AXES.__contains__, _OPTIONS), *_SHARED)
    ],
    bases=(Options,),
    frozen=True,
    kw_only=True,
)


@dataclass(frozen=True, kw_only=True)
class Grid(_Values):  # type: ignore[misc]  # made of the fields of `Config`
    """Every axis with its values, and what all runs share; see `compare` for the meaning.

    The fields are those of `Config`, `seeds` (how many, from `seed` on) and `set`. An axis holds a
    tuple, or None for "the method's (or the data's) own"; of methods, texts of a `Variant`.
    """

    seeds: Count = option(5, RUNNING, "How many, from --seed on")
    set: Mapping[str, Setting] = field(default_factory=dict)

    def __post_init__(self) -> None:
        fold_preset(self)
        numerics.check_seed(self.seed + self.seeds - 1)
        known = dict[str, None]()
        for variant in self.variants:
            Config(method=variant.method, set=variant.settings)
            known |= dict.fromkeys(settings_of(variant.method))
        family_of(variant.method for variant in self.variants)
        for key in self.set:
            checks.one_of("--set of these methods", key, known)
        for trust in self.trust or ():
            if trust in NOISY:  # also where no epsilon is finite, and no run has it
                Federation(1, 2, epsilon=min(self.epsilon), trust=trust)

    def to_dict(self) -> dict[str, Any]:
        """Plain values without the unset ones; infinity stays a float."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        listed = {name: [*v] if isinstance(v, tuple) else v for name, v in plain.items()}
        return {name: value for name, value in listed.items() if value is not None}

    @property
    def variants(self) -> list[Variant]:
        """The methods."""
        return [Variant.parse(text) for text in self.method]

    def drafts(self, split_by_seed: Mapping[str, bool]) -> list[Cell]:
        """All cells, not yet resolved, in the order of the table: of each data the baselines first.

        Without privacy there is one delta, unit, trust and mechanism. With it there are all
        combinations, also those that cannot be; but where epsilon = inf is in the grid, trust
        secagg is meant for that.

        Parameters
        ----------
        split_by_seed
            name of the data -> whether its test part follows from the seed
        """
        seeds = tuple(range(self.seed, self.seed + self.seeds))
        trusts, variants = self.trust or (None,), dict(zip(self.method, self.variants, strict=True))
        exact = {"delta": self.delta[0], "unit": self.unit[0], "mechanism": Config.mechanism}
        exact["trust"] = SecAgg.name if SecAgg.name in trusts else None
        apart = math.inf in self.epsilon and {*trusts} != {SecAgg.name}
        cells = dict[str, Cell]()
        for values in product(*(getattr(self, axis) or (None,) for axis in AXES)):
            given = dict(zip(AXES, values, strict=True))
            variant = variants[given["method"]]
            if variant.baseline:
                names = ("data", "partition", "clients") if variant.partitioned else ("data",)
                known = {name: given[name] for name in names} | {"seed": self.seed}
            elif math.isinf(given["epsilon"]):
                known = self._alike(variant, given | exact)
            elif apart and given["trust"] == SecAgg.name:
                continue
            else:
                known = self._alike(variant, given)
            config = Config(**known | {"method": variant.method})
            once = variant.baseline and not variant.partitioned and not split_by_seed[config.data]
            cell = Cell(variant, config, seeds[:1] if once else seeds)
            cells.setdefault(f"{variant.text} {config}", cell)

        return sorted(cells.values(), key=self._place)

    def _place(self, cell: Cell) -> tuple[int, bool, bool]:
        """Return what sorts cells: of each data the baselines first, those of all rows before."""
        baseline, partitioned = cell.variant.baseline, cell.variant.partitioned
        return self.data.index(cell.config.data), not baseline, baseline and partitioned

    def _alike(self, variant: Variant, given: dict[str, Any]) -> dict[str, Any]:
        """Add what all runs share, each setting where there is one, and a quorum likewise."""
        known = settings_of(variant.method)
        own = {**{k: v for k, v in self.set.items() if k in known}, **variant.settings}
        alike: dict[str, Any] = {name: getattr(self, name) for name in _SHARED}
        alike |= given | {"set": own}
        shared = given["trust"] in TRUSTS and TRUSTS[given["trust"]].shared
        if not shared and self.secure_aggregation != "protocol":
            alike["quorum"] = Config.quorum
        return alike


def read_grid(*layers: Mapping[str, Any]) -> Grid:
    """Return a grid from several layers of options, later ones winning; `set` tables are joined.

    Raises
    ------
    InputError
        An unknown option, an entry of a list that is empty, a value that is not allowed.
    """
    return Grid(**layered(_OPTIONS | options_of(Grid), *layers, read=_value))


def _value(option: Option, value: Any) -> Any:
    """Return the value of an option, or the tuple of those of an axis."""
    if option.name in ALONE:
        checks.unused("compare simulates many populations without a ledger", **{option.name: value})
    if not option.axis:
        return option.checked(value)
    listed = [*value] if isinstance(value, Sequence) else [value]
    if isinstance(value, str):  # commas within brackets separate settings of a method
        listed = [part.strip() for part in re.split(r",(?![^[({]*[])}])", value)]
    if not listed or any(entry is None or entry == "" for entry in listed):
        raise InputError(f"{option.name}: no entry of a list may be empty, got {value!r}")
    if option.name == "method":
        listed = [m for one in listed for m in (comparable() if one == "all" else (one,))]
        texts = (one if isinstance(one, str) else option.checked(one) for one in listed)
        return tuple(Variant.parse(text).text for text in texts)
    entries = []
    for entry in listed:
        if option.kind is not str and isinstance(entry, str):
            with suppress(ValueError):  # what is not a number is refused next
                entry = checks.number_in(entry, option.kind)
        entries.append(option.checked(entry))
    return tuple(entries)


# --- the check of a whole grid before anything runs: data, deals, plans --------------------------

LeftOut = tuple[Cell, str]
"""A cell that cannot be, and why."""


def resolve(grid: Grid, sources: Mapping[str, Dataset]) -> tuple[list[Cell], list[LeftOut]]:
    """Return each cell with the values that its runs will have: clients, rounds, trust, delta.

    A setting for all methods is left to those runs that it does something in. Cells whose runs
    would be the same (two values of delta, and a method that spends none) are
    one: each run is done, and counted, once. Combinations that cannot be are left out, also all of
    a method, as long as each other value that was asked for is in some cell.

    Returns
    -------
    tuple of list
        Cells that will be run, and impossible combinations that are skipped.

    Raises
    ------
    InputError
        Data without a test part or natural clients, and what any run would refuse because of a
        value that goes with nothing else in the grid: a number of rounds that a method does not
        have, a parameter, a budget, unit, trust or mechanism.

    Warns
    -----
    UserWarning
        Where a delta is too large, once for each; where something is left out.
    """

    @cache
    def deal(name: str, partition: str, clients: int | None) -> tuple[Shards, tuple[str, ...]]:
        _, shards, names = load.assigned_rows(sources[name], some, partition, clients, grid.seed)
        return shards, names

    some = grid.variants[0].method  # all are of one family, and so about the same rows

    cells, warned = dict[str, Cell](), dict[str, None]()
    left_out, used = list[LeftOut](), set[tuple[str, object]]()
    idle = {**grid.set, "quorum": None if grid.quorum == Config.quorum else grid.quorum}
    read = {"rows_per_client"}
    for cell in grid.drafts({name: data.test_scores is None for name, data in sources.items()}):
        c = cell.config
        shards, names = deal(c.data, c.partition, c.clients)
        if not cell.variant.baseline:
            try:
                c, job = _with_effect(cell, shards, names)
            except InputError as e:
                left_out.append((cell, str(e)))
                continue
            plan = job.plan
            read |= {*c.set} if c.quorum == Config.quorum else {*c.set, "quorum"}
            used |= _asked(cell)
            little = "".join(underpowered(c.method, shards, job))
            known = replace(  # what the job resolved, but for the method's parameters
                c,
                clients=plan.clients,
                rounds=plan.rounds - plan.counting_rounds,
                trust=plan.trust,
                delta=plan.delta,
                mechanism=plan.mechanism.name if plan.private else Config.mechanism,
                secure_aggregation=job.secure_aggregation,
            )
            # what --set gives to all methods is in the label, too; alpha is in the table
            own = {k: v for k, v in c.set.items() if k != "alpha"} | dict(cell.variant.settings)
            cell = Cell(Variant(c.method, own), known, cell.seeds, plan, little)
            if plan.private and plan.delta >= 1 / plan.clients:
                warned[large_delta(plan)] = None
        elif cell.variant.partitioned:
            cell = replace(cell, config=replace(c, clients=shards.clients))
        cells.setdefault(_meaning(cell), cell)
    for cell, why in left_out:
        if not _asked(cell) <= used:
            raise InputError(f"{cell.name}: {why}")
    unread = {name: value for name, value in idle.items() if name not in read}
    checks.unused("no run of this comparison reads it", **unread)
    if left_out:
        first, why = left_out[0]
        facts = f"{first.variant.label} with {', '.join(first.protection)}: {why}"
        warned[f"impossible combinations are skipped ({len(left_out)}), the first {facts}"] = None
    for text in warned:
        checks.warn(text)
    if few := [cell for cell in cells.values() if cell.little]:
        text = f"lines with too little ({len(few)}), the first {few[0].name}: {few[0].little}"
        checks.warn(text, TooLittle)
    return list(cells.values()), left_out


def _with_effect(cell: Cell, shards: Shards, names: tuple[str, ...]) -> tuple[Config, Job]:
    """Return the cell's job, without the shared settings that have no effect in it.

    Raises InputError for what is not allowed, and for a setting of the method's own that has no
    effect, as in `fedbbq[clip_positive=1]`.
    """
    config = cell.config
    while True:
        try:
            job = jobs.job_of(*jobs.resolved(config, shards, names))
            job.plan  # noqa: B018  making it refuses what is not allowed
        except NoEffect as e:
            if e.name in cell.variant.settings or e.name not in config.set:
                raise
            config = replace(config, set={k: v for k, v in config.set.items() if k != e.name})
        else:
            return config, job


def _asked(cell: Cell) -> set[tuple[str, object]]:
    """Return the values of the axes that a cell has, but for its method."""
    return {(axis, getattr(cell.config, axis)) for axis in AXES if axis != "method"}


def _meaning(cell: Cell) -> str:
    """Return a key that is equal for cells with the same run, however they are spelt."""
    defaults = {k: p.default for k, p in settings_of(cell.config.method).items()}
    plain = asdict(replace(cell.config, set={**defaults, **cell.config.set}))
    return repr(sorted((plain | {"partition": partitions.parse(cell.config.partition)}).items()))
