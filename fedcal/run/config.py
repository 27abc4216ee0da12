"""The options of a run: one set of names for command line, TOML and Python."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import numpy as np

from fedcal import __version__, partition, trust
from fedcal.core import imports, naming, options
from fedcal.core.checks import InputError, like, one_of, unused
from fedcal.core.options import DATA, PRIVACY, RUNNING, SITES, VERSION, Option, option, options_of
from fedcal.privacy.privacy import MOST_CLIENTS, Privacy
from fedcal.results.labels import APP, STUDY
from fedcal.secure_aggregation.roster import check_committee
from fedcal.storage import atomic, toml_files
from fedcal.strategies import STRATEGIES, register
from fedcal.strategies.server.job import Books, Running
from fedcal.strategies.settings import Setting, check_settings, fold_preset, settings_of

Call = TypeVar("Call", bound=Callable[..., Any])


def layered(
    known: Mapping[str, Option],
    *layers: Mapping[str, Any],
    read: Callable[[Option, Any], Any] = Option.checked,
) -> dict[str, Any]:
    """Return values by option from several layers, later ones winning; tables are joined.

    Raises InputError if an option is unknown, or `read` refuses its value.

    Parameters
    ----------
    known : mapping of str to Option
        By name; a layer may write names with dashes.
    *layers : mapping
        Of what was given; None is nothing.
    read : callable
        The value of an option from what was given.
    """
    values: dict[str, Any] = {}
    for raw, given in (item for layer in layers for item in layer.items()):
        key = raw.replace("-", "_")
        if key not in known:
            one_of("option", raw, known, "--help")
        if given is not None:
            value = read(known[key], given)
            joined = isinstance(value, Mapping) and key in values
            values[key] = {**values[key], **value} if joined else value
    return values


def takes_options(of: Callable[..., Any], *without: str) -> Callable[[Call], Call]:
    """Let `inspect`, and so editors and notebooks, see a function's `**options` as keywords.

    Parameters
    ----------
    of : callable
        What takes them: a dataclass of options, or a function to which they are passed on.
    *without : str
        Those that the function does not take.
    """

    def spelt(call: Call) -> Call:
        signature, hints = inspect.signature(call), get_type_hints(of)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        passed = [
            p.replace(annotation=hints.get(p.name, p.annotation))
            for p in inspect.signature(of).parameters.values()
            if p.kind is p.KEYWORD_ONLY and p.name not in {*without, *signature.parameters}
        ]
        call.__signature__ = signature.replace(  # type: ignore[attr-defined]  # a function has it
            parameters=[*own, *passed]
        )
        return call

    return spelt


POOLED = {
    "none": "uncalibrated",
    "one-source": "one source",
    "pooled-temperature": "pooled temperature",
    "pooled-bbq": "pooled BBQ",
}
"""Baseline fitted without a federation, on nothing, one client's rows, or all -> its label."""


def label_of(method: str) -> str:
    """Return a method's label in tables."""
    strategy = STRATEGIES.get(method)
    return strategy.__name__ if strategy else POOLED.get(method, method)


def method_named(text: Any) -> Any:
    """Return the name of a method given by name or label in any case; others are unchanged.

    `module:Class`, or in Python the class itself, is a method of another package (`register`).
    """
    if isinstance(text, type):
        return register(text)
    if not isinstance(text, str):
        return text
    if ":" in text and text not in STRATEGIES:
        return register(imports.named("--method", text.strip()))
    spelt = {form.lower(): m for m in (*STRATEGIES, *POOLED) for form in (label_of(m), m)}
    return spelt.get(text.strip().lower(), text.strip())


ENGINES = ("inline", "ray", "flower", "grpc")


def _method(name: str, value: Any) -> str:
    return one_of(name, value, (*STRATEGIES, *POOLED), "fedcal simulate --help")


def _engine(name: str, value: Any) -> str:
    return one_of(name, value, ENGINES if value not in (APP, STUDY) else (APP, STUDY))


def _read_by(reader: Callable[[str], object]) -> options.Check:
    """Return a check for texts that a function can read."""

    def check(name: str, value: Any) -> str:
        reader(options.text(name, value))
        return str(value)

    return check


def _settings(name: str, value: Any) -> dict[str, Any]:
    """Return a table of settings, or of texts `KEY=VALUE`."""
    table = dict(map(parse_setting, value)) if isinstance(value, (list, tuple)) else value
    if not isinstance(table, Mapping):
        raise InputError(f"option {name!r} must be a table of key = value")
    return {k: v.item() if isinstance(v, np.generic) else v for k, v in table.items()}


check_partition = _read_by(partition.parse)


EVERYBODY_UP_TO = 7
"""So many sites are all members, where nobody says who is."""


def default_threshold(size: int) -> int:
    """One member may be absent; of seven or more two."""
    return max(2, size - (1 if size < EVERYBODY_UP_TO else 2))


def read_committee(text: str) -> tuple[int, int]:
    """Members and threshold of "C,T"; InputError for anything else."""
    like("committee", text, r"\s*[0-9]{1,3}\s*,\s*[0-9]{1,3}\s*", "C,T, such as 5,4")
    size, threshold = map(int, text.split(","))
    check_committee(size, threshold)
    return size, threshold


@dataclass(frozen=True, kw_only=True)
class RunOptions(Books, Privacy):
    """Options of every run: its privacy, its books, its secure sums and its engine."""

    committee: Annotated[str, _read_by(read_committee)] | None = option(
        None,
        PRIVACY,
        "Protocol: C,T: number of members, and how many of them open a sum",
        unset="3,2 4,3 5,4 6,5 for 3 to 6 clients, else 7,5",
    )
    colluding: options.Numbers | None = option(
        None,
        PRIVACY,
        "Protocol: number of sites that may collude with the server; noise does not rely on them",
        unset="as many as the committee allows",
    )
    engine: Annotated[str, _engine] = option(
        "inline",
        RUNNING,
        "inline: this process | ray: workers of a Ray cluster, many clients each | "
        "flower: Flower's simulation on Ray | grpc: a process for each client",
    )
    set: Annotated[Mapping[str, Setting], _settings] = option(
        dict, DATA, "KEY=VALUE: a parameter of the method"
    )


@dataclass(frozen=True, kw_only=True)
class Config(Running, RunOptions):
    """Options of a run. `None` means the method's (or the data's) own default."""

    data: str = option("resnet110-cifar10", DATA, "A shipped name or a file", axis=True)
    class_names: Annotated[str, _read_by(naming.names_in)] | None = option(
        None,
        DATA,
        "Comma-separated names of the classes, in the order of the columns; real sites must have "
        "the same",
        unset="the columns' names, if any",
        read=lambda names: ",".join(map(str, names)) if isinstance(names, list | tuple) else names,
    )
    positive: str | None = option(
        None, DATA, "Positive class of two, for recall, AUC and thresholds", unset="the second"
    )
    method: Annotated[str, _method] = option(
        "fednewton",
        DATA,
        f"{' | '.join((*STRATEGIES, *POOLED))} | MODULE:CLASS: your own",
        axis=True,
        read=method_named,
    )
    clients: Annotated[int, options.within(1, MOST_CLIENTS)] | None = option(
        None, DATA, "Number of enrolled clients", unset="100", axis=True
    )
    partition: Annotated[str, check_partition] = option(
        "dirichlet:0.1", DATA, " | ".join(partition.forms()), axis=True
    )
    preset: Literal["paper"] | None = option(
        None,
        DATA,
        "paper: the method as in its paper, where fedcal's defaults differ; as --set preset=paper",
    )
    ray_address: str | None = option(
        None, RUNNING, "HOST:PORT of a Ray cluster for the engine ray", unset="a new one"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        fold_preset(self)
        self._check_protocol()
        self.check_quorum(self.protocol)
        if self.ledger is None:
            unused("there is no ledger; give --ledger FILE", cap=self.cap, cap_delta=self.cap_delta)
        elif not self.private:
            unused("a run without privacy is charged to none; give --epsilon", ledger=self.ledger)
        if self.engine != "ray":
            unused("there is no cluster; give --engine ray", ray_address=self.ray_address)
        if self.method in POOLED and (self.private or self.real):
            raise InputError(
                f"method '{self.method}' reads the rows themselves: it has no private form (leave "
                "epsilon at inf), and real sites keep theirs (give a federated method: "
                "`fedcal plan` compares them)"
            )
        self._check_sites()
        check_settings(self.method, self.set)

    @property
    def protocol(self) -> bool:
        """True if sites add up among themselves."""
        return self.secure_aggregation == "protocol"

    @property
    def real(self) -> bool:
        """True if the clients are real ones, each with its own rows."""
        return self.engine in (APP, STUDY)

    def _check_protocol(self) -> None:
        if not self.protocol:
            why = "it is for secure aggregation 'protocol'"
            unused(why, committee=self.committee, colluding=self.colluding)
            return
        if self.engine == "flower":
            raise InputError(
                "secure aggregation 'protocol' needs sites that remember their answers: give "
                "--engine inline, ray or grpc"
            )

    def _check_sites(self) -> None:
        """Check options of sites and messages, and those that real sites exclude."""
        if self.engine not in ("grpc", APP, STUDY):
            of_sites = [name for name, one in options_of(Config).items() if one.group == SITES]
            given = {name: getattr(self, name) for name in of_sites}
            unused("the engine is not grpc; give --engine grpc", **given)
        if not self.real:
            return
        unused(
            "at real sites the second of class_names is positive, and theirs must be the same",
            positive=self.positive,
        )
        simulated = None if self.partition in (Config.partition, "natural") else self.partition
        unused("real sites are not simulated", dropout=self.dropout or None, partition=simulated)
        shared = self.trust is not None and trust.TRUSTS[self.trust].shared
        if self.engine == APP and (shared or self.secure_aggregation in ("masks", "protocol")):
            raise InputError(
                "masks that the server knows protect nothing from it, a share of noise protects "
                "nothing without a secure sum, and for that real sites need each other's keys: "
                "a study has them (fedcal study), here give --trust central or local without "
                "secure aggregation"
            )


def read_options(path: Path) -> dict[str, Any]:
    """Return the options in a TOML file; InputError if another version of fedcal wrote it."""
    table = toml_files.read_toml(path)
    version = table.pop(VERSION, __version__)
    if version != __version__:
        raise InputError(
            f"{path} was written by fedcal {str(version)[:20]!r}, and this is fedcal "
            f"{__version__}: a config repeats a run in its own version; to run these options with "
            f"this one, delete its line {VERSION!r}"
        )
    return table


def load_config(path: str | Path, *overrides: Mapping[str, Any]) -> Config:
    """Return a Config from a TOML file and overriding values.

    The file of a run holds the given options; the others are resolved again.
    """
    return merge(read_options(atomic.path_of(path)), *overrides)


def merge(*layers: Mapping[str, Any]) -> Config:
    """Return a Config from several layers, later ones winning; `set` tables are joined."""
    known, given = options_of(Config), dict(item for layer in layers for item in layer.items())
    for name in settings_of(str(given.get("method"))).keys() & given.keys() - known.keys():
        raise InputError(f"{name} is a parameter of the method: set={{{name!r}: {given[name]!r}}}")
    return Config(**layered(known, *layers))


def parse_setting(text: str) -> tuple[str, Setting]:
    """`KEY=VALUE` of `--set`; the value is TOML (7, 0.5, true), a JSON list or plain text."""
    key, sign, raw = text.partition("=")
    if not sign or not key.strip():
        raise InputError(f"--set takes KEY=VALUE, got {text!r}")
    value = toml_files.toml_value(raw)
    if isinstance(value, list):  # a method's own list is text, as files and messages hold it
        value = raw.strip()
    return key.strip(), value
