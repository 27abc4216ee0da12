"""A method in a table: with parameters of its own, and a name for people."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from fedcal.errors import InputError
from fedcal.experiments.config import POOLED, label_of, method_named, parse_setting
from fedcal.strategies.settings import Setting, settings_of


@dataclass(frozen=True)
class Variant:
    """A method with parameters of its own, as in `fedbbq[weighting=none,bins_exponent=5]`."""

    method: str
    settings: Mapping[str, Setting] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Variant:
        """From `METHOD` or `METHOD[KEY=VALUE,...]`; `;` separates as `,` does.

        A label is taken as well, as `FedBBQ (weighting=none)`.
        """
        found = re.fullmatch(r"([^][()]+)(?:\[([^][()]*)\]|\(([^][()]*)\))?", text.strip())
        if found is None:
            raise InputError(f"a method is METHOD or METHOD[KEY=VALUE,...], got {text!r}")
        method, inside = method_named(found[1]), found[2] if found[3] is None else found[3]
        settings: dict[str, Setting] = {}
        for pair in () if inside is None else re.split("[;,]", inside):
            if "=" not in pair:
                raise InputError(f"{method}[...] takes KEY=VALUE, got {pair!r} in {text!r}")
            key, value = parse_setting(pair)
            if key in settings:
                raise InputError(f"{key!r} is there twice in {text!r}")
            settings[key] = value
        return cls(method, settings)

    @property
    def text(self) -> str:
        """What `parse` takes."""
        return self.method + (f"[{self._pairs(',')}]" if self.settings else "")

    @property
    def label(self) -> str:
        """What the table calls it."""
        return label_of(self.method) + (f" ({self._pairs(', ')})" if self.settings else "")

    @property
    def baseline(self) -> bool:
        """Whether it reads the rows themselves, without a federation."""
        return self.method in POOLED

    @property
    def dealt(self) -> bool:
        """Whether its result depends on how the rows were dealt."""
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
