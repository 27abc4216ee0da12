"""Rounds against sampling: what noise a budget asks for, and which pair calibrates best.

Maddock et al. size their noise by zCDP and let every round count in full (Lemmas B.3 and B.7);
they name amplification by sampling and do not use it. Here stand four accounts of the same
releases, and real runs over a grid of rounds and sampling rates.

Amplification holds against readers of what is released, who do not learn who took part. It does
not hold against the server, which asks the clients and so knows.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

from fedcal.accounting.gaussian import (
    check_delta,
    check_epsilon,
    check_multiplier,
    check_rate,
    check_rounds,
    gaussian_multiplier,
    private_side,
    zcdp_multiplier,
    zcdp_rho,
)
from fedcal.experiments.research.studies.spec import Record, Rows
from fedcal.experiments.runs.comparison import compare
from fedcal.experiments.runs.comparison.table import Line
from fedcal.strategies.server.outcome import Progress

ROUNDS = (1, 2, 4, 8, 12, 30, 60)
RATES = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0)
EPSILONS = (0.1, 1.0, 3.0, 8.0)
DELTA = 1e-5
CLIP = 0.5
"""C of the paper's scaling methods."""

RUNS: dict[str, Any] = {
    "data": "resnet110-cifar10",
    "method": [
        *("none", "pooled-temperature"),
        *("fedtemp", "fedtemp[average=temperature]", "fednewton"),
    ],
    "clients": [100, 1000],
    "rounds": [1, 2, 4, 8, 12, 30],
    "sampling_rate": [0.05, 0.1, 0.25, 0.5, 1.0],
    "epsilon": 1.0,
    "delta": DELTA,
    "partition": "dirichlet:0.1",
}
"""Options of `compare`."""


def paper_std(
    epsilon: float, delta: float, rounds: int, clip: float, histograms: int | None = None
) -> float:
    """Noise std of Lemma B.7 for one released sum, everybody taken to be in every round.

    Parameters
    ----------
    epsilon, delta, rounds
        the budget, and the T releases that share it
    clip
        C, bound of the L2 norm of one client's update, or of each of its histograms
    histograms
        2 c, how many histograms a client sends for c classes; None = scaling

    Returns
    -------
    float
        C sqrt(T / (2 rho)), times sqrt(2 c) for binning; rho from Lemma B.3.

    Raises
    ------
    InputError
        For a value outside of the ranges of `zcdp_rho`, and rounds below 1.
    """
    return clip * math.sqrt(histograms or 1) * zcdp_multiplier(epsilon, delta, rounds)


def rows(
    out: Path | None = None,
    resume: bool = False,
    jobs: int | None = None,
    ray_address: str | None = None,
    progress: Progress | None = None,
    *,
    seeds: int = 5,
    **narrower: Any,
) -> Rows:
    """Both halves of the experiment: `what` tells them apart.

    Parameters
    ----------
    out, resume, jobs, ray_address, progress
        see `compare`; runs are kept in `out/runs`
    seeds
        of the runs
    narrower
        options of `compare` instead of those of `RUNS`, to see it run

    Returns
    -------
    list of dict
        what = "multiplier": see `multiplier_row`; what = "run": see `_run_row`.
    """
    comparison = compare(
        out=None if out is None else out / "runs",
        resume=resume,
        jobs=jobs,
        ray_address=ray_address,
        progress=progress,
        seeds=seeds,
        **RUNS | narrower,
    )
    accounts = (multiplier_row(e, r, q) for e, r, q in product(EPSILONS, ROUNDS, RATES))
    return [*accounts, *map(_run_row, comparison.cells)]


def multiplier_row(epsilon: float, rounds: int, rate: float, delta: float = DELTA) -> Record:
    """Noise multipliers (std per unit of L2 sensitivity) that four accounts ask for.

    Returns
    -------
    dict
        `zcdp`: the paper's (Lemma B.3 and B.7, no amplification); `zcdp_standard`: the same with
        Bun & Steinke's conversion; `rdp`: Renyi DP with sampling; `tight`: what a plan uses.
        `rho`: of Lemma B.3. `paper_scaling_std`: the paper's noise at C = 0.5.
        `mean_std`: tight / rate, the noise std of the *mean* update in units of C / K, and
        `mean_std_paper`: the same for the paper's account.
    """
    tight = gaussian_multiplier(epsilon, delta, rounds, rate)
    zcdp = zcdp_multiplier(epsilon, delta, rounds)
    return {
        "what": "multiplier",
        "epsilon": epsilon,
        "delta": delta,
        "rounds": rounds,
        "sampling_rate": rate,
        "rho": zcdp_rho(epsilon, delta),
        "zcdp": zcdp,
        "zcdp_standard": math.sqrt(check_rounds(rounds) / (2 * zcdp_rho_simple(epsilon, delta))),
        "rdp": rdp_multiplier(epsilon, delta, rounds, rate),
        "tight": tight,
        "paper_scaling_std": paper_std(epsilon, delta, rounds, CLIP),
        "mean_std": tight / rate,
        "mean_std_paper": zcdp / rate,
    }


def _run_row(line: Line) -> Record:
    """Convert a line of the comparison to a row.

    Returns
    -------
    dict
        `mean_std`: as in `multiplier_row`; `cwece`, `ece`: means over seeds as fractions, with
        `_std`.
    """
    rounds, rate = line["rounds"], line["sampling_rate"]
    settings = ",".join(f"{k}={v}" for k, v in line["settings"].items())
    known = ("clients", "epsilon", "delta", "rounds", "sampling_rate")
    return {
        "what": "run",
        "method": line["method"] + (f"[{settings}]" if settings else ""),
        **{k: None if line["baseline"] and k != "rounds" else line[k] for k in known},
        "mean_std": rate and gaussian_multiplier(line["epsilon"], DELTA, rounds, rate) / rate,
        "seeds": len(line["seeds"]),
        "cwece": line["after"]["classwise_ece"]["mean"],
        "cwece_std": line["after"]["classwise_ece"]["std"],
        "ece": line["after"]["ece"]["mean"],
        "ece_std": line["after"]["ece"]["std"],
    }


def zcdp_rho_simple(epsilon: float, delta: float) -> float:
    """Return the largest rho by the conversion epsilon = rho + 2 sqrt(rho log(1 / delta)).

    It is below `zcdp_rho`: the lemma that the paper cites improved on it.


    Raises InputError as ``zcdp_rho``.

    Source
    ------
    Bun & Steinke 2016 (Concentrated differential privacy), Proposition 1.3.
    """
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    log = -math.log(delta)
    root = epsilon / (math.sqrt(log + epsilon) + math.sqrt(log))
    return math.nextafter(root * root * (1 - 1e-15), 0.0)


_WHOLE = (*range(2, 64), *(round(64 * 1.2**i) for i in range(16)))
_BROKEN = tuple(2 + i / 8 for i in range(64) if i % 8)
_CONVERGES = 4.0  # above it the library's series for broken orders may not


def rdp_epsilon(delta: float, multiplier: float, rounds: int = 1, rate: float = 1.0) -> float:
    """Return the epsilon of Poisson-sampled Gaussian releases by Renyi differential privacy.

    The paper uses it for participation below 1 (B.1, after Lemma B.7). It is an upper bound, looser
    than ``accounting.poisson_gaussian_epsilon``, whose parameters and meaning it shares; the
    minimum is over the orders 2 to 64 and some above, up to 986, and for small multipliers
    (below 4) over eighths of an order from 2 to 10.

    Raises
    ------
    InputError
        For a value outside of the ranges there.

    Source
    ------
    Mironov 2017 (Renyi differential privacy); Mironov, Talwar & Zhang 2019 for the sampled
    Gaussian; converted as in Lemma B.3; all of it by dp-accounting.
    """
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    delta, multiplier = check_delta(delta), check_multiplier(multiplier)
    rounds, rate = check_rounds(rounds), check_rate(rate)
    orders = (*_BROKEN, *_WHOLE) if multiplier < _CONVERGES else _WHOLE
    accountant = RdpAccountant(orders, dp_accounting.NeighboringRelation.REPLACE_SPECIAL)
    one = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(multiplier))
    accountant.compose(dp_accounting.SelfComposedDpEvent(one, rounds))
    return float(accountant.get_epsilon(delta))


@lru_cache(maxsize=1024)
def rdp_multiplier(epsilon: float, delta: float, rounds: int = 1, rate: float = 1.0) -> float:
    """Return the smallest noise multiplier for ``epsilon`` by ``rdp_epsilon``, within 2e-4 above.

    Parameters are those of ``accounting.gaussian_multiplier``. Raises InputError in the same cases.
    """
    tight = gaussian_multiplier(epsilon, delta, rounds, rate)

    def excess(multiplier: float) -> float:
        return math.log(max(rdp_epsilon(delta, multiplier, rounds, rate) / epsilon, 1e-9))

    high = 1.1 * tight
    while excess(high) > 0:
        high *= 1.5
    return private_side(excess, min(1.03 * tight, high), 0.99 * tight, high)
