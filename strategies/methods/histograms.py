"""Histogram calibrators: FedBin and FedBBQ (Maddock et al., Algorithm 1), and DPHistogram."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from fedcal import calibrators
from fedcal.calibrators import Calibrator, HistogramBinning, histogram_binning
from fedcal.calibrators.histogram_binning import Estimate
from fedcal.clients.questions import histograms
from fedcal.core.numerics import Floats, override
from fedcal.core.options import Positive
from fedcal.mechanisms import Laplace
from fedcal.metrics.binning import Counts, tables
from fedcal.privacy import Federation, Plan, Query, Question, Release
from fedcal.privacy.privacy import order_of
from fedcal.strategies.base import FederatedStrategy, Preset, integer
from fedcal.units import UNITS

Weighting = Literal["none", "all", "changed"]
Clipping = Literal["per_class", "joint"]
Tables = Literal["per_class", "pooled"]

BALANCE = 5000.0
"""Answers, over the noise std under a clip of 1, at which FedBBQ clips at the nominal rows."""


class FedBin(FederatedStrategy):
    """Federated histogram binning; by default the paper's naive baseline, without weighting.

    One histogram of positives and one of negatives per class, summed over clients.

    By default one round with everybody: repeated rounds count a client again and add noise.

    tables="pooled" (ours) asks for one pair of histograms over all classes, P(b) = sum_j P_j(b)
    and N(b) = sum_j N_j(b), and makes one table that every class uses: c times fewer numbers to
    send and to add noise to, but no correction that differs between classes. Of two classes N is
    P mirrored, so only P is sent, each row counted once.

    Weighting mixes the calibrator with the model, g~_j = a_j g_j + (1 - a_j) p_j. Without privacy
    a_j is the share of class-j rows that were aggregated (pooled: of all rows); the denominator
    takes one further secure-sum query to everybody (the paper says that none is needed; it does
    not say how the server would know the number). With privacy a_j is signal over expected noise
    (B.5), with the noise accumulated over all rounds.

    Privacy: as the plan says. Public: the federation and all parameters below, which must not be
    tuned on the clients' rows. With unit "user" a client's blocks are clipped:

    * Per class, the blocks are P_1, ..., P_c with norm clip_positive and N_1, ..., N_c with norm
      clip_negative. With two classes only class 1 is sent and c counts as 1.
    * Pooled, they are P with norm clip_positive, N's first bin with norm
      2 (c - 1) clip_positive, and N's other bins with norm clip_negative. A client with m rows
      has m positives and m (c - 1) negatives, nearly all of these in the first bin, where they
      tell little: weighed down by 2 (c - 1) they leave the clip to the rows that matter. Of two
      classes the only block is P, and clip_negative is not used.
    * clipping="per_class" clips each block to its own norm; the L2 sensitivity, in units of the
      norms, is the root of the number of blocks, so the noise std of P is
      clip_positive sqrt(2 c) sigma and that of N clip_negative sqrt(2 c) sigma (Lemma B.7).
      Blocks shrink by different factors, which biases P : N.
    * clipping="joint" clips all blocks, each divided by its norm, to norm 1 together: the noise
      std of a block is its norm times sigma, and a client's P : N stays what it is.

    With unit "example" the blocks of each row are clipped jointly, and the norms follow from what
    a row is, so that hardly any is cut:

    * Per class, it is a 1 in P of its class and a 1 in N of the others: c ones, norm sqrt(c) (with
      Laplace noise, where L1 norms count, c). Of two classes it is a single 1.
    * Pooled, it is a 1 in P and c - 1 in N, nearly all of these in the first bin: room for two
      others makes the norm sqrt(3.25) (Laplace: 3.5), and 2 (c - 1) times it in the first bin.

    Parameters
    ----------
    federation
        public facts and budget; default 1 round
    bins_exponent
        M, 2**M bins of equal width
    weighting
        "none", "all" rows, or only rows whose prediction the calibrator has "changed"
    tables
        "per_class" or "pooled"
    clipping, clip_positive, clip_negative
        as above, in rows; None = "per_class", 2, and 5 clip_positive, of two classes as much as it,
        pooled half of it: these norms are ours, the paper's are [10, 50] (section 5). Refused where
        they do nothing: without privacy, and with unit "example"
    preset
        "paper" = the settings of Maddock et al., where none is given: tables and clips per class,
        [10, 50], 12 rounds. (Of each round the paper asks a tenth of the clients: sampling rate
        0.1.)
    """

    name = "fedbin"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"bins_exponent": 4},
        {"bins_exponent": 4, "tables": "pooled"},
        {"bins_exponent": 4, "weighting": "all"},
    )
    _estimate: Estimate = "posterior"
    calibrator: ClassVar[type[HistogramBinning | calibrators.BBQ]] = HistogramBinning
    preset: Preset = None
    bins_exponent: Annotated[int, integer(1, 16)] = 7
    weighting: Weighting = "none"
    tables: Tables | None = "per_class"
    clipping: Clipping | None = None
    clip_positive: Positive | None = None
    clip_negative: Positive | None = None

    @override
    def paper(self) -> dict[str, Any]:
        clips = {"clipping": "per_class", "clip_positive": 10.0, "clip_negative": 50.0}
        return {"tables": "per_class"} | (clips if self.hides_clients else {})

    def prepare(self) -> Plan:
        """Return the plan, for the blocks of an answer and their norms."""
        self.bins, self.pooled = 2**self.bins_exponent, self.tables == "pooled"
        clips = "clipping", "clip_positive", "clip_negative"
        if not self.federation.private:
            self.unused("without privacy there is no clipping", *clips)
        elif self.pooled and self.classes == 2:
            self.unused("of two classes, pooled, only P is sent", "clip_negative")
        kind = histograms.PooledHistograms if self.pooled else histograms.ClassHistograms
        self._query = query = kind(self.bins, self.classes)
        if not UNITS[self.federation.unit].by_client:
            self.unused(f"unit '{self.federation.unit}' knows how much a row counts", *clips)
            bound = query.bound(query.part(self.federation.unit), order=order_of(self.federation))
        else:
            positive = self.clip_positive or 2.0
            ratio = 0.5 if self.pooled else 1.0 if self.classes == 2 else 5.0
            bound = query.bound("client", (positive, self.clip_negative or ratio * positive))
            if self.clipping != "joint":
                bound = replace(bound, rule="per_block")
        self._sum, self._variance = np.zeros(bound.length), np.zeros(bound.length)
        self._class_rows = np.zeros(self.classes)
        counting = int(self.weighting != "none")
        rounds = 12 if self.preset else 1
        return self.plan_with(rounds, bound, row_sums=query.row_sums, counting_rounds=counting)

    def query(self, round_number: int) -> Query:
        """Histograms; before them, where needed, everybody's rows per class."""
        if not self.plan.private and self.weighting != "none" and round_number == 1:
            return histograms.ClassCounts(self.classes)
        return self._query

    def questions(self) -> tuple[Question, ...]:
        """Histograms in all rounds, but for the one that counts classes."""
        first, then = self.query(1), self._query
        if first is then:
            return super().questions()
        return Question.like(first, (1, 1)), Question.like(then, (2, self.plan.rounds))

    def update(self, release: Release) -> None:
        """Accumulate counts and the variance of their noise."""
        if release.kind == "class_counts":
            self._class_rows = release.values
            return
        self._sum = self._sum + release.values
        self._variance = self._variance + release.std**2

    @override
    def result(self) -> Calibrator:
        positives, negatives = self._pair(self._sum)
        base = self.calibrator.from_histograms(positives, negatives, self.classes, self._estimate)
        if self.weighting == "none":
            return base
        weights = self._weights(positives.sum(axis=1))
        weights = np.repeat(weights, len(base.table) // len(weights))
        return calibrators.WeightedBinning(base, weights, self.weighting)

    def _pair(self, numbers: Floats) -> tuple[Floats, Floats]:
        """Return those of P and of N, (tables, bins) each; one table if classes are pooled."""
        if self.pooled and self.classes == 2:
            return numbers[None], numbers[None, ::-1]
        both = numbers.reshape(2, -1, self.bins)
        return both[0], both[1]

    def _weights(self, seen: Floats) -> Floats:
        """a_j from `seen`, (tables,): the uncut sum of each table's positives."""
        if self.plan.private:
            std = np.sqrt(self._variance[: len(seen) * self.bins : self.bins])
            return histogram_binning.noise_weight(seen, std, self.bins)
        there = self._class_rows[-len(seen) :]  # of two classes, the second
        if self.pooled:
            there = self._class_rows.sum(keepdims=True)
        share = np.divide(seen, there, out=np.ones_like(seen), where=there > 0)
        return np.clip(share, 0.0, 1.0)


class FedBBQ(FedBin):
    """Federated BBQ; by default weighted in all rows, the paper's final protocol.

    Privacy: as the plan says; what is clipped, and how, follows from the unit, `tables` and
    `clipping`. Public: the federation and all parameters.

    By default a private run asks for pooled tables under one joint clip, and weighs each bin of
    each binning by signal^2 / (signal^2 + noise^2) (see `shrunk`). The paper's weight (B.5), that
    of the other estimates, is one for a class: it is 1 from where the *average* bin has as many
    rows as noise, so that noise is believed in most bins.

    A client's clip balances noise, which grows with it, and the bias of clipping, which falls:

        clip_positive = rows_per_client * sqrt(A / (5000 sigma))

    with A the answers in all rounds (clients * sampling_rate * sqrt(rounds)) and sigma the noise
    std under a clip of 1. It grows with the budget without end, but slower than sigma falls, so
    that noise and bias both vanish.

    Parameters
    ----------
    tables
        None = "pooled" with privacy, "per_class" without
    clipping
        with privacy None = "joint"
    clip_positive
        with privacy None = as above, in rows (the paper: 10)
    estimate
        "shrunk"; or one weight for a class, and averaged over binnings are "posterior" means, or
        "share", P / (P + N) (Maddock et al., B.4). None = "shrunk" with privacy and
        weighting="all", else "posterior"
    rows_per_client
        the public nominal number of rows of a client; needed with privacy for unit `user` unless
        `clip_positive` is given
    preset
        as FedBin's, and with "paper" `estimate` is "share"
    """

    name = "fedbbq"
    examples = (
        {"bins_exponent": 4},
        {"bins_exponent": 4, "tables": "per_class"},
        {"bins_exponent": 4, "weighting": "none"},
        {"bins_exponent": 4, "weighting": "changed"},
    )
    calibrator = calibrators.BBQ
    weighting: Weighting = "all"
    tables: Tables | None = None
    estimate: Estimate | None = None
    rows_per_client: Positive | None = None

    @classmethod
    @override
    def needs_rows(cls, federation: Federation, settings: Mapping[str, Any]) -> bool:
        clipped = not settings.get("clip_positive") and not settings.get("preset")
        return clipped and federation.private and UNITS[federation.unit].by_client

    @override
    def paper(self) -> dict[str, Any]:
        return super().paper() | {"estimate": "share"}

    @override
    def prepare(self) -> Plan:
        private = self.federation.private
        shrinks = private and self.weighting == "all"
        if self.estimate == "shrunk" and not shrinks:
            self.unused("only with privacy and weighting=all is there noise to weigh", "estimate")
        self._estimate = self.estimate = self.estimate or ("shrunk" if shrinks else "posterior")
        self.tables = self.tables or ("pooled" if private else "per_class")
        if not self.hides_clients:
            return super().prepare()
        self.clipping = self.clipping or "joint"
        if self.clip_positive is None:
            self.clip_positive = rows = self.nominal_rows("fedbbq with no clip_positive")
            plan = super().prepare()
            noise = (plan.noise_std or (0.0,))[0] / rows
            self.clip_positive = rows * math.sqrt(plan.answers / (BALANCE * noise))
        return super().prepare()

    @override
    def result(self) -> Calibrator:
        if self.estimate != "shrunk":
            return super().result()
        counts, variances = self._pair(self._sum), self._pair(self._variance)
        table, weights = histogram_binning.shrunk(*counts, *variances)
        each = tables(self.classes) // len(table)
        base = calibrators.BBQ(np.repeat(table, each, axis=0), self.classes)
        return calibrators.WeightedBinning(base, np.repeat(weights, each, axis=0))


class DPHistogram(FederatedStrategy):
    """Histogram binning of the confidence in the prediction, by one round of noisy counts.

    Each bin of the confidence gets its share of correct predictions; no prediction changes (see
    `TopLabelBinning`, also for counts below 0 and empty bins).

    Privacy: the federation's unit and trust, one release with Laplace noise unless the federation
    names another mechanism. Public: the federation and all parameters.

    * Unit `example`, add/remove of one row: a row adds 1 to one of the correct and wrong counts:
      L1 sensitivity 1 (ours). With counts="correct_total", the paper's, a correct row adds 1 to
      two of them: sensitivity 2, four times the variance of the noise.
    * Unit `user`, zero-out (replace under `local`): a client's counts are clipped to `clip` in L1
      norm, all by the same factor.

    Parameters
    ----------
    federation
        public facts and budget; one round
    bins
        of equal width
    counts
        "correct_wrong" or "correct_total"
    clip
        of unit `user` with privacy, in rows, and refused elsewhere; None = max(0.08 m, 1)
    rows_per_client
        m, the public nominal number of rows of a client; needed with privacy for
        unit `user` unless `clip` is given
    preset
        "paper" = counts="correct_total", as Luo et al. send, where none is given
    """

    name = "dp-histogram"
    examples = ({}, {"counts": "correct_total"})
    preset: Preset = None
    bins: Annotated[int, integer(1, 2**16)] = 15
    counts: Counts = "correct_wrong"
    clip: Positive | None = None
    rows_per_client: Positive | None = None

    @override
    def paper(self) -> dict[str, Any]:
        return {"counts": "correct_total"}

    def prepare(self) -> Plan:
        """Return the plan of the one round."""
        self.check_rounds(1)
        self._values = np.zeros(0)
        clips = (self.client_clip(0.08, 1.0),)
        return self.plan_for(self.query(1), clips, 1, 1, prefers=(Laplace,))

    @override
    def query(self, round_number: int) -> Query:
        return histograms.BinOutcomes(self.bins, self.counts)

    def update(self, release: Release) -> None:
        """Keep the counts; all are exactly 0 if no client was asked, or none has rows."""
        if release.values.any():
            self._values = release.values

    def result(self) -> Calibrator:
        """Return the bins' confidences as a calibrator; the identity if nothing was learned."""
        if not len(self._values):
            return calibrators.Identity(self.classes)
        first, second = np.split(self._values, 2)
        return calibrators.TopLabelBinning.from_counts(first, second, self.classes, self.counts)
