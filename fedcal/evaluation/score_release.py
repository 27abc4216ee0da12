"""A release of counts by score and outcome, which is read again at no further cost."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self, get_args

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import interval, one_of
from fedcal.core.naming import listed
from fedcal.core.numerics import KINDS, Floats, Kind
from fedcal.core.options import array
from fedcal.core.pages import Part
from fedcal.evaluation import findings
from fedcal.evaluation.findings import Counted, Findings, Key
from fedcal.evaluation.page import parts
from fedcal.evaluation.sites import effects
from fedcal.evaluation.sites.site_tests import Sites
from fedcal.mechanisms import NoiseDistribution
from fedcal.metrics.histogram import Histogram
from fedcal.metrics.score_table import ScoreTable
from fedcal.storage.artifact import Artifact

_ALL = ""


@dataclass(frozen=True, eq=False)
class ScoreRelease(Artifact):
    """Noisy counts of rows by score and outcome, the answer to one question.

    Everything computed from it (metrics, curves, calibrators, thresholds) is post-processing
    of a release that was charged when it was made, and costs nothing more.

    Attributes
    ----------
    question
        the question; its `reference` and `gain` are not used any more
    counts
        (question.counts,) unbiased estimates
    std
        standard deviation of the noise of each number of an answer; 0 = none
    exact
        the plan added no noise, so exact numbers may stand beside it; see `judge`. A noise of 0
        does not show this: a private release without any answer has none either
    known
        whether anything was released; if not, counts are 0 and mean nothing
    law
        distribution of that noise
    privacy
        privacy statement, in sentences, for later readers of the file
    threshold
        default threshold: rows with a score from here on (at 1/2: above it) are predicted positive
    excluded
        sources of error that no interval contains, in words
    input
        kind of the clients' rows, and so the input of a calibrator from these counts
    unit
        unit of privacy; "" = without privacy
    counted
        see `Weighting`
    data
        name of its data set or file; "" = real sites, None = not known
    """

    form = "release"
    noun = "release"

    question: ScoreTable
    counts: Floats
    std: float = 0.0
    distribution: NoiseDistribution = field(default_factory=NoiseDistribution)
    privacy: tuple[str, ...] = ()
    threshold: float = 0.5
    excluded: tuple[str, ...] = ()
    input: Kind = "logits"
    exact: bool = False
    known: bool = True
    unit: str = ""
    counted: Counted = "rows"
    data: str | None = None

    def __post_init__(self) -> None:
        array("counts", self.counts, (self.question.counts,))
        interval("[0, inf)")("std of the counts", self.std)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return edges, counts, and all else as text."""
        asked = {k: v for k, v in self.question.params().items() if k not in _NOT_KEPT}
        plain = {**asked, "classes": self.question.classes}
        return {
            "question": np.array(json.dumps(plain)),
            "edges": self.question.edges,
            "counts": self.counts,
            "law": np.array(json.dumps(self.distribution.to_json())),
            "taken": np.array(json.dumps({"unit": self.unit, "data": self.data})),
            **{name: np.array(json.dumps(getattr(self, name))) for name in _TEXTS},
            **{name: np.array(getattr(self, name)) for name in _PLAIN},
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the release from the arrays of `arrays`."""
        asked = json.loads(str(arrays["question"]))
        facts = {"classes": asked.pop("classes")}
        taken = json.loads(str(arrays["taken"]))
        plain = {name: kind(arrays[name]) for name, kind in _PLAIN.items()}
        plain |= {name: tuple(map(str, json.loads(str(arrays[name])))) for name in _TEXTS}
        one_of("input", plain["input"], KINDS)
        one_of("counted", plain["counted"], get_args(Counted))
        return cls(
            ScoreTable.read({**asked, "edges": arrays["edges"]}, facts),
            np.array(arrays["counts"], np.float64),
            distribution=NoiseDistribution.read(str(arrays["law"])),
            unit=str(taken["unit"]),
            data=None if taken["data"] is None else str(taken["data"]),
            **plain,
        )

    # -- results --------------------------------------------------------------------------

    def learnt_on(self, input: Kind) -> None:
        """Set the input kind, for calibrators made from it."""
        object.__setattr__(self, "input", input)

    def of_data(self, name: str) -> None:
        """Set the name of the data, for later comparisons with another release."""
        object.__setattr__(self, "data", name)

    def under(self, statement: Sequence[str]) -> ScoreRelease:
        """Return the release with a privacy statement, which its file then contains."""
        return replace(self, privacy=tuple(statement))

    @property
    def weighting(self) -> findings.Weighting:
        """Weighting of rows: unit that counts once, and limit per subject."""
        return findings.Weighting(self.counted, self.question.subject_rows)

    def of_sites(self, sites: Mapping[str, Any]) -> ScoreRelease:
        """Return the release with absent sites listed among the sources that intervals exclude."""
        if not sites["absent"]:
            return self
        away = f"the rows of {listed(sites['absent'])}, which took no part"
        return replace(self, excluded=(*self.excluded, away))

    def findings(self, threshold: float | None = None) -> Findings:
        """Return all metrics; InputError for a threshold that is not an edge of a bucket."""
        at = self.threshold if threshold is None else threshold
        result = findings.findings(
            self.histograms,
            self.question.score,
            agreement=self.agreement,
            cell_std=self.cell_std,
            threshold=at,
            excluded=self.excluded,
            weighting=self.weighting,
        )
        if self.known:
            return result
        return replace(result, rows=(math.nan, math.nan), tests={}, cox={})

    @cached_property
    def found(self) -> Findings:
        """`findings` at its own threshold."""
        return self.findings()

    def results(self) -> dict[str, Any]:
        """Return its metrics, differences and groups, and the prediction for a new site."""
        return self.found.to_json() | ({"next_site": self._next_site} if self._next_site else {})

    @cached_property
    def _next_site(self) -> dict[str, Any]:
        """Prediction for a new site from sites that were counted apart; {} for fewer than 3."""
        asked = self.question
        if asked.by != "site" or asked.score == "classes" or not self.known:
            return {}
        sites = self.by_site
        if not sites.root.any():  # exact: a site without rows or answer adds nothing
            sites = sites[sites.counts.any(axis=(1, 2))]
        return effects.next_site(sites) if len(sites.rows) > 2 else {}

    def page(self) -> list[Part]:
        """Return tables and figures of metrics, curves and groups."""
        shown = parts(self.found, self.histograms, self.class_names)
        return shown + ([effects.next_site_table(self._next_site)] if self._next_site else [])

    # -- what is read from it -------------------------------------------------------------

    @property
    def histograms(self) -> dict[Key, Histogram]:
        """Every histogram; where groups were counted apart, also their sum, under group ""."""
        asked, cells = self.question, self._cells
        parts = cells.shape[2]
        counts, root = cells.sum(axis=2), np.tile(self._root, parts)
        histograms: dict[Key, Histogram] = {}
        groups = asked.group_names
        for v, view in enumerate(asked.view_names):
            for k in range(counts.shape[2]):
                part = str(k) if counts.shape[2] > 1 else ""
                each = counts[v, :, k]
                if groups != (_ALL,):
                    widened = root * math.sqrt(len(each))
                    overall = self._histogram(
                        each.sum(axis=0), widened, self.distribution.times(len(each))
                    )
                    histograms[view, _ALL, part] = overall
                for g, group in enumerate(groups):
                    histograms[view, group, part] = self._histogram(
                        each[g], root, self.distribution
                    )
        return histograms

    def _histogram(
        self, counts: Floats, root: Floats, distribution: NoiseDistribution
    ) -> Histogram:
        return Histogram(self.question.bucket_edges, counts, root, distribution).joined()

    @property
    def by_site(self) -> Sites:
        """Rows of each site between the question's `edges_read`."""
        asked, cells = self.question, self._cells
        starts = np.searchsorted(asked.bucket_edges, asked.edges_read[:-1])
        counts, root = cells[0, :, :, 0].sum(axis=1), np.tile(self._root, cells.shape[2])
        counts, root = (np.add.reduceat(counts, starts, -1), np.add.reduceat(root, starts, 0))
        return self.sites_of(counts, root, self.distribution)

    def sites_of(self, counts: Floats, root: Floats, distribution: NoiseDistribution) -> Sites:
        """Return such counts (S, 2, buckets) for tests of sites."""
        asked = self.question
        # the largest probability is at least 1 / c
        least = -math.log(asked.classes - 1) if asked.score == "confidence" else -math.inf
        most = max(asked.subject_rows, 1)
        return Sites.of(counts, asked.edges_read, root, distribution, least, most)

    @property
    def within(self) -> dict[tuple[str, str], Histogram]:
        """(Site, group) -> rows of a group within a site; site "" = of all. {} if not asked."""
        asked, cells = self.question, self._cells[0, :, :, 0]
        histograms, of = dict[tuple[str, str], Histogram](), self._histogram
        for k, group in enumerate(asked.within_names):
            root = self._root * math.sqrt(len(cells))
            histograms["", group] = of(
                cells[:, k].sum(axis=0), root, self.distribution.times(len(cells))
            )
            for site, own in zip(asked.group_names, cells, strict=True):
                histograms[site, group] = of(own[k], self._root, self.distribution)
        return histograms

    @property
    def _cells(self) -> Floats:
        """Counts by view, group, group within, part, outcome and bucket."""
        views, groups, *rest = self.question.shape
        inner = len(self.question.within_names) + 1
        size = math.prod(self.question.shape)
        return self.counts[:size].reshape(views, groups // inner, inner, *rest)

    @property
    def agreement(self) -> Floats | None:
        """Rows that both views, only the first, only the second, and none predicts right, (4,)."""
        return self.counts[-4:] if len(self.question.view_names) == 2 else None

    @property
    def cell_std(self) -> float:
        """Standard deviation of the noise of each number of `agreement`."""
        return self.std / self.question.weight

    @property
    def _root(self) -> Floats:
        asked = self.question
        return asked.decoder * self.std if self.std else np.zeros((asked.buckets, 0))


_PLAIN: dict[str, Any] = {
    **dict.fromkeys(("std", "threshold"), float),
    **dict.fromkeys(("input", "counted"), str),
    **dict.fromkeys(("exact", "known"), bool),
}
"""Fields that are stored as they are, with their types."""

_TEXTS = ("privacy", "excluded")
"""Fields that are stored as JSON lists of sentences."""

_NOT_KEPT = ("edges", "reference", "gain", "pad", "seed")
"""Parameters of a question that are stored apart, or not needed to read its counts."""
