"""Histogram calibrators: FedBin and FedBBQ (Maddock et al., Algorithm 1), and DPHistogram."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from fedcal import calibrators
from fedcal.calibrators import Calibrator, HistogramBinning, histogram_binning
from fedcal.calibrators.histogram_binning import Estimate, norm_sub
from fedcal.clients.questions import histograms
from fedcal.core.numerics import Floats, override
from fedcal.core.options import Positive
from fedcal.mechanisms import Laplace
from fedcal.metrics.binning import Counts
from fedcal.privacy import Plan, Query, Question, Release
from fedcal.privacy.privacy import order_of
from fedcal.strategies.base import FederatedStrategy, Preset, integer
from fedcal.units import UNITS

Weighting = Literal["none", "all", "changed"]
Clipping = Literal["per_class", "joint"]
Tables = Literal["per_class", "pooled"]


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
        as above, in rows; None = "per_class", 2 and 10: these
        norms are ours, the paper's are [10, 50] (section 5). Refused where they do nothing: without
        privacy, and with unit "example"
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
    _shared = False  # whether negative noisy counts are taken from the others, not cut at 0
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
            bound = query.bound("client", (self.clip_positive or 2.0, self.clip_negative or 10.0))
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
        positives, negatives = self._pair()
        redistribute = norm_sub if self._shared else np.asarray
        base = self.calibrator.from_histograms(
            redistribute(positives), redistribute(negatives), self.classes, self._estimate
        )
        if self.weighting == "none":
            return base
        weights = self._weights(positives.sum(axis=1))
        weights = np.repeat(weights, len(base.table) // len(weights))
        return calibrators.WeightedBinning(base, weights, self.weighting)

    def _pair(self) -> tuple[Floats, Floats]:
        """P and N, (tables, bins) each; one table if classes are pooled."""
        if self.pooled and self.classes == 2:
            return self._sum[None], self._sum[None, ::-1]
        both = self._sum.reshape(2, -1, self.bins)
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

    By default a private run takes what measured best, or nearly so, at epsilon = 1
    with 100 to 1000 clients: pooled tables and one joint clip. Classwise ECE over that of the
    uncalibrated model there, mean of 100, 300 and 1000 clients (geometric; FedNewton 0.45, 0.39
    and 0.66), by what becomes of negative counts:

    ==================  ================================  ================================
    data                pooled: cut / merged / norm-sub   per class: cut / merged / norm-sub
    ==================  ================================  ================================
    resnet110-cifar10   0.81 / 0.74 / 0.81                0.79 / 1.33 / 1.74
    imdb-binary         0.68 / 1.03 / 0.64                1.05 / 1.32 / 1.52
    densenet-cifar100   0.78 / 0.83 / 0.83                1.02 / 2.12 / 2.07
    ==================  ================================  ================================

    All figures are means of three seeds (commit 6c29d14). Three are few: twenty seeds on
    resnet110-cifar10 with 100, 300, 1000 clients gave a classwise ECE of 0.81, 0.61, 0.53 % pooled
    and cut, 0.92, 0.84, 0.75 % merged, 0.85, 0.79, 0.77 % per class (joint);
    uncalibrated 0.98. With 100 clients pooled tables scatter four times as widely (std 0.40), and
    single runs end above the uncalibrated model.

    Parameters
    ----------
    tables
        None = "pooled" with privacy, "per_class" without
    clipping
        with privacy None = "joint"
    clip_positive
        with privacy None = 1 pooled, of two classes 0.5; 2 per class; in rows (the
        paper: 10)
    clip_negative
        with privacy None = 0.5 pooled; per class 10, of two classes 2; in rows (the
        paper: 50)
    estimate
        what is averaged over binnings, "posterior" means (ours), or "share", P / (P + N)
        (Maddock et al., B.4)
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
    estimate: Estimate = "posterior"

    @override
    def paper(self) -> dict[str, Any]:
        return super().paper() | {"estimate": "share"}

    @override
    def prepare(self) -> Plan:
        self._estimate = self.estimate
        private, binary = self.federation.private, self.classes == 2
        self.tables = self.tables or ("pooled" if private else "per_class")
        pooled = self.tables == "pooled"
        if self.hides_clients:
            self.clipping = self.clipping or "joint"
            positive = 2.0 if not pooled else 0.5 if binary else 1.0
            self.clip_positive = self.clip_positive or positive
            if not (binary and pooled):
                negative = 0.5 if pooled else 2.0 if binary else 10.0
                self.clip_negative = self.clip_negative or negative
        self._shared = private and binary and pooled
        return super().prepare()


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
