"""Thresholds from noisy counts of rows: of rows and subjects, and centred ones of whole clients."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fedcal.clients.questions import SetCounts, SetGaps
from fedcal.conformal.label_shift import weighted_level
from fedcal.conformal.levels.levels import after_last, centred_level, client_clip
from fedcal.conformal.levels.noise_law import Noise
from fedcal.conformal.page import SOURCE, of_release
from fedcal.conformal.set_release import FAILS, SetRelease
from fedcal.core.errors import InputError
from fedcal.core.types import Floats, override
from fedcal.mechanisms import MECHANISMS, Gaussian, Laplace, Mechanism, Target
from fedcal.metrics.encodings import ENCODINGS, TREE, prefix_std
from fedcal.privacy.curator import Release
from fedcal.privacy.federation import AUTO, Federation
from fedcal.privacy.query import Order
from fedcal.strategies.methods.quantiles.base import QuantileRule, Wanted
from fedcal.units import UNITS
from fedcal.units.bounding import Bound

BINS, BINS_OF_PARTS = 256, 64
"""Thresholds of `prefix`, of one part and of several: at so many the grid adds at most 0.2 and 0.8
points of coverage to evenly spread scores."""

GAPS = 24
"""Thresholds of `gaps`: each is noisy by itself, and all share the budget."""


class Noisy(QuantileRule):
    """A rule that reads thresholds from noisy counts of rows."""

    @classmethod
    @override
    def obstacles(cls, federation: Federation, wanted: Wanted) -> dict[str, bool]:
        asked = federation.mechanism
        other = asked != AUTO and MECHANISMS[asked].answers != "sum"
        why = f"it releases sums, which '{asked}' does not make noisy"
        return super().obstacles(federation, wanted) | {why: other}

    @property
    def std(self) -> float:
        """Standard deviation of the noise of a sum, as planned."""
        return float(max(self.plan.noise_std or (0.0,)))

    def noise(self, std: float) -> Noise:
        """Return the noise of numbers with this std."""
        return Noise(std, self.plan.noise_law(std))

    def learn(self, release: Release) -> Floats:
        """Return the thresholds; all labels where no site answered."""
        if self.plan.unanswered(release.std):
            return np.ones(1 if self.wanted.shift else self.opening.parts)
        return self.found(release.values, float(release.std.max(initial=0.0)))

    @abstractmethod
    def found(self, values: Floats, std: float) -> Floats:
        """Return the thresholds from released values, whose noise has this std, (parts,)."""


class NoisyGaps(Noisy):
    """Centred counts at a few thresholds, each clipped and noisy by itself (ours).

    Privacy: the plan's; unit "user" (zero-out; replace under `local`): each of a client's centred
    counts is clipped to +-C. How many rows there are is taken from the public nominal number; of
    several parts from a noisy bound.
    """

    name = "gaps"
    needs_rows = True
    opening: SetGaps

    def __init__(self, federation: Federation, wanted: Wanted) -> None:
        super().__init__(federation, wanted)
        self._stricter = self.alpha
        if wanted.apart or wanted.shift:
            self._stricter -= FAILS * self.alpha  # the bound of a part's number of rows may fail
        hit = np.ones(1) if wanted.shift is None else wanted.shift.weights
        self.opening = SetGaps(
            federation.classes,
            self.thresholds(wanted.bins or GAPS),
            **wanted.asked,
            need=(1.0 - self._stricter) * hit,
            hit=hit,
        )
        rows = (wanted.rows_per_client or 1.0) / self.opening.parts
        self._clip = client_clip(rows, self.alpha) * float(hit.max())
        self.bound, self.prefers = self.opening.bound("client", (self._clip,)), (Gaussian, Laplace)

    @classmethod
    @override
    def obstacles(cls, federation: Federation, wanted: Wanted) -> dict[str, bool]:
        why, whole = "it protects whole clients", UNITS[federation.unit].whole_client
        return super().obstacles(federation, wanted) | {why: not whole}

    @override
    def found(self, values: Floats, std: float) -> Floats:
        asked, alpha = self.opening, self._stricter
        sums, noise = values.reshape(asked.parts, -1), self.noise(std)
        law, last = noise.of_one(), sums[:, -1]  # at 1 each row counts alpha, unless it is clipped
        fewest = last - noise.bound(np.ones(1), 1.0 - FAILS * self.alpha)
        if self.wanted.shift is not None:
            levels = [weighted_level(float(asked.need.max()), float(fewest[0]), law)]
        elif asked.parts > 1:
            self.counted = tuple((last / alpha).tolist()), std / alpha
            levels = [centred_level(rows, alpha, law) for rows in (fewest / alpha).tolist()]
        else:
            levels = [centred_level(self.expected, alpha, law)]
        parts = zip(sums, levels, strict=True)
        return np.array([after_last(asked.thresholds, s[:-1] < level) for s, level in parts])

    def reaches(self, rows: float | None) -> bool:
        """Return whether the level is at most the sum over all rows of a part."""
        each = (rows or 0.0) / self.opening.parts
        level = centred_level(each, self._stricter, self.noise(self.std).of_one())
        return level <= self._stricter * each

    @property
    def guarantee(self) -> tuple[str, ...]:
        """Guarantee, with its assumption about clipping."""
        promise, clipped = self.clipped(self._clip, "")
        if self.wanted.shift is not None:
            return promise, SOURCE, clipped
        return promise, f"This counts on about {self.expected:,.6g} rows in all, or more.", clipped


class PrefixCounts(Noisy):
    """Counts of rows by score, encoded for prefix sums, and the exact law of their noise (ours).

    Privacy: the plan's, by the noise on all counts together; unit "example" (add/remove of a row,
    which is a 1 in one count) and unit "subject" (one of a subject's rows counts, drawn by a
    hash). With the number of rows private the level suits a noisy bound of it.
    """

    name = "prefix"
    takes_known = True
    opening: SetCounts

    def __init__(self, federation: Federation, wanted: Wanted) -> None:
        super().__init__(federation, wanted)
        by_label = {"by": "class"} if wanted.shift else {}
        bins = wanted.bins or (BINS_OF_PARTS if wanted.apart or wanted.shift else BINS)
        law, encoding, height = quietest(federation, bins, self.rounds)
        self.opening = SetCounts(
            federation.classes,
            self.thresholds(bins, arcs=True),
            **{**wanted.asked, **by_label},
            once=self.one_row_each,
            encoding=encoding,
            height=height,
        )
        part = self.opening.part(federation.unit)
        self.bound, self.prefers = self.opening.bound(part, (), law.order), (law,)

    @classmethod
    @override
    def obstacles(cls, federation: Federation, wanted: Wanted) -> dict[str, bool]:
        known = wanted.rows_known and (wanted.apart or wanted.shift is not None)
        return super().obstacles(federation, wanted) | {
            "it protects rows, or subjects, not whole clients": UNITS[federation.unit].whole_client,
            "the rows of each part are counted: rows_known is for all parts together": known,
        }

    @override
    def found(self, values: Floats, std: float) -> Floats:
        self.release = made = self._made(values, std)
        self.counted = tuple(made.total.tolist()), made.total_std
        return made.found(self.alpha, self.wanted.shift)

    def _made(self, values: Floats, std: float) -> SetRelease:
        return SetRelease(
            np.asarray(self.opening.thresholds),
            self.opening.decode(values),
            self.opening.decoder,
            self.noise(std),
            round(self.expected) if self.wanted.rows_known else None,
            self.whose,
        )

    def reaches(self, rows: float | None) -> bool:
        """Return whether exact counts of rows that all have the least score give a threshold."""
        if rows is None:
            return True
        made = self._made(np.zeros(sum(self.opening.lengths())), self.std)
        counts = np.zeros_like(made.counts)
        counts[:, 0] = rows / len(counts)
        known = None if made.rows is None else round(rows)
        return bool((replace(made, counts=counts, rows=known).found(self.alpha) < 1).any())

    @property
    @override
    def whose(self) -> str:
        if not self.wanted.apart:
            return super().whose
        return super().whose.replace("all clients' rows taken together", "the clients' rows there")

    @property
    def guarantee(self) -> tuple[str, ...]:
        """Exact: of exchangeable rows, and the law of the noise."""
        if self.release is None:
            return (self.promise,)
        return of_release(self.release, self.alpha, self.wanted.parts_by, self.wanted.shift)


HEIGHTS = (1, 2, 3, 4)
"""Levels of trees that are tried."""


def quietest(
    federation: Federation,
    buckets: int,
    rounds: int,
    names: tuple[str, ...] = tuple(ENCODINGS),
    heights: tuple[int, ...] = HEIGHTS,
    weight: Callable[[str, int, Order], float] = lambda name, height, order: 1.0,
) -> tuple[type[Mechanism], str, int]:
    """Return mechanism, encoding and height with the least noise, of those that the user allows.

    Raises InputError if the user's mechanism does not go without delta.

    Parameters
    ----------
    buckets
        counts that are encoded together
    rounds
        releases
    names, heights
        encodings that are tried, and levels of trees
    weight
        norm of a row's answer over the largest of the encoding's columns
    """
    order = None if federation.mechanism == AUTO else MECHANISMS[federation.mechanism].order
    target = Target(federation.epsilon, federation.delta, rounds)
    best: tuple[float, type[Mechanism], str, int] | None = None
    for law in (Laplace, Gaussian):
        if order not in (None, law.order) or not (law.pure or federation.delta > 0):
            continue
        made = law.calibrate(target)
        for name in names:
            for height in heights if name == TREE else (1,):
                bound = Bound((1,), (weight(name, height, law.order),), order=law.order)
                noise = float(made.std(made.scale(bound, 1), 1.0, bound).max())
                noise *= prefix_std(name, buckets, height, law.order)
                if best is None or noise < best[0]:
                    best = noise, law, name, height
    if best is None:
        raise InputError(f"mechanism '{federation.mechanism}' needs delta > 0")
    return best[1:]
