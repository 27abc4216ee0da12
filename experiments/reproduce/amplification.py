"""Rounds against sampling: what noise a budget asks for, and which pair calibrates best.

Maddock et al. size their noise by zCDP and let every round count in full (Lemmas B.3 and B.7);
they name amplification by sampling and do not use it. Here stand four accounts of the same
releases, and real runs over a grid of rounds and sampling rates.

Amplification holds against readers of what is released, who do not learn who took part. It does
not hold against the server, which asks the clients and so knows.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

from fedcal.accounting.gaussian import check_rounds, gaussian_multiplier
from fedcal.accounting.zcdp import rdp_multiplier, zcdp_multiplier, zcdp_rho, zcdp_rho_simple
from fedcal.experiments.config import Config
from fedcal.experiments.simulation import simulate
from fedcal.strategies.job import Progress, Setting

Row = dict[str, Any]
"""(parts done, parts in all)."""

ROUNDS = (1, 2, 4, 8, 12, 30, 60)
RATES = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0)
EPSILONS = (0.1, 1.0, 3.0, 8.0)
DELTA = 1e-5
CLIP = 0.5
"""C of the paper's scaling methods."""

DATA = "resnet110-cifar10"
RUN_ROUNDS = (1, 2, 4, 8, 12, 30)
RUN_RATES = (0.05, 0.1, 0.25, 0.5, 1.0)
CLIENTS = (100, 1000)
SEEDS = 5
METHODS: dict[str, tuple[str, dict[str, Setting]]] = {
    "fedtemp": ("fedtemp", {}),
    "fedtemp[average=temperature]": ("fedtemp", {"average": "temperature"}),
    "fednewton": ("fednewton", {}),
}


def paper_std(
    epsilon: float, delta: float, rounds: int, clip: float, histograms: int | None = None
) -> float:
    """Noise std of Lemma B.7 for one released sum, everybody taken to be in every round.

    Parameters
    ----------
    epsilon, delta, rounds : the budget, and the T releases that share it
    clip : C, bound of the L2 norm of one client's update, or of each of its histograms
    histograms : 2 c, how many histograms a client sends for c classes; None = scaling

    Returns
    -------
    C sqrt(T / (2 rho)), times sqrt(2 c) for binning; rho from Lemma B.3.

    Raises
    ------
    InputError
        For a value outside of the ranges of `zcdp_rho`, and rounds below 1.
    """
    return clip * math.sqrt(histograms or 1) * zcdp_multiplier(epsilon, delta, rounds)


def rows(quick: bool = False, progress: Progress | None = None) -> list[Row]:
    """Both halves of the experiment: `what` tells them apart.

    Parameters
    ----------
    quick : a few entries of each, to see it run
    progress : called after each entry

    Returns
    -------
    list of dict
        what = "multiplier": see `multiplier_row`; what = "run": see `run_row`.
    """
    parts = list(_parts(quick))
    done: list[Row] = []
    for number, part in enumerate(parts, 1):
        done.append(part())
        if progress is not None:
            progress(number, len(parts))
    return done


def _parts(quick: bool) -> Iterator[Callable[[], Row]]:
    if quick:
        yield partial(multiplier_row, 1.0, 4, 0.1)
        yield partial(multiplier_row, 1.0, 4, 1.0)
    else:
        for epsilon, r, q in product(EPSILONS, ROUNDS, RATES):
            yield partial(multiplier_row, epsilon, r, q)
    for name in ("none", "pooled-temperature"):
        yield partial(baseline_row, name)
    if quick:
        for name in METHODS:
            yield partial(run_row, name, 100, 2, 1.0, 1)
    else:
        for k, name, r, q in product(CLIENTS, METHODS, RUN_ROUNDS, RUN_RATES):
            yield partial(run_row, name, k, r, q)


def multiplier_row(epsilon: float, rounds: int, rate: float, delta: float = DELTA) -> Row:
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


def run_row(
    name: str, clients: int, rounds: int, rate: float, seeds: int = SEEDS, epsilon: float = 1.0
) -> Row:
    """A method run over simulated clients, Dirichlet 0.1, mean and spread over seeds.

    Parameters
    ----------
    name : a key of `METHODS`
    clients, rounds, rate, epsilon : K, R, q and the user-level budget at delta = 1e-5

    Returns
    -------
    dict
        `asked`: answers that a client is expected to give, R q; `mean_std`: as in
        `multiplier_row`; `mean_update_std`: the noise on the mean update, sigma C / (q K), in
        units of the averaged parameter (FedTemp only); cwece, ece: means over seeds as
        fractions, with `_std`; `temperature`: mean.
    """
    method, settings = METHODS[name]
    results = [
        simulate(
            config=Config(
                data=DATA,
                method=method,
                clients=clients,
                rounds=rounds,
                sampling_rate=rate,
                epsilon=epsilon,
                delta=DELTA,
                seed=seed,
                set=settings,
            )
        )
        for seed in range(seeds)
    ]
    mean_std = gaussian_multiplier(epsilon, DELTA, rounds, rate) / rate
    return {
        "what": "run",
        "method": name,
        "clients": clients,
        "epsilon": epsilon,
        "delta": DELTA,
        "rounds": rounds,
        "sampling_rate": rate,
        "asked": rounds * rate,
        "mean_std": mean_std,
        "mean_update_std": mean_std * CLIP / clients if method == "fedtemp" else None,
        "seeds": seeds,
        **_spread("cwece", [r.after["classwise_ece"] for r in results]),
        **_spread("ece", [r.after["ece"] for r in results]),
        "temperature": statistics.fmean(_temperature(r.calibrator) for r in results),
    }


def baseline_row(name: str) -> Row:
    """The model as it is ("none"), or one temperature of all rows in one place."""
    result = simulate(config=Config(data=DATA, method=name))
    return {
        "what": "run",
        "method": name,
        "clients": None,
        "epsilon": None,
        "delta": None,
        "rounds": 0,
        "sampling_rate": None,
        "asked": 0,
        "mean_std": None,
        "mean_update_std": None,
        "seeds": 1,
        **_spread("cwece", [result.after["classwise_ece"]]),
        **_spread("ece", [result.after["ece"]]),
        "temperature": _temperature(result.calibrator),
    }


def _temperature(calibrator: object) -> float:
    return float(getattr(calibrator, "temperature", 1.0))


def _spread(name: str, values: list[float]) -> Row:
    """Mean and standard deviation; the latter 0 for a single value."""
    std = statistics.stdev(values) if len(values) > 1 else 0.0
    return {name: statistics.fmean(values), f"{name}_std": std}
