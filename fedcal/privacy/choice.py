"""Which mechanism a run takes, and what each of its releases may spend.

`Preferred` is what a method asks for; the user's `mechanism` and the trust model decide.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from fedcal.errors import InputError
from fedcal.privacy import accounting
from fedcal.privacy.bounding import Bound
from fedcal.privacy.federation import Federation
from fedcal.privacy.mechanisms import DIVISIBLE, LAPLACIAN, Mechanism

Preferred = Literal["gaussian", "laplace", "least", "exponential", "unary"]
"""What a method's release is made for: noise on a sum ("least" = Laplace or Gaussian, whichever has
the smaller std), the draw of an index, or the counts of one-hot answers."""

_SHARED: dict[Mechanism, Mechanism] = {
    "gaussian": "discrete-gaussian",
    "laplace": "discrete-laplace",
}


def choose(federation: Federation, preferred: Preferred, bound: Bound, rounds: int) -> Mechanism:
    """The mechanism of a private run.

    Raises
    ------
    InputError
        If the user's mechanism does not fit the method's release or the trust model.
    """
    asked, trust = federation.mechanism, federation.trust
    kind = preferred if preferred in ("exponential", "unary") else "sum"
    mechanism: Mechanism
    if kind != "sum":
        mechanism = "exponential" if kind == "exponential" else "unary"
        home = {"exponential": "central", "unary": "local"}[mechanism]
        if trust != home:
            raise InputError(f"mechanism '{mechanism}' needs trust '{home}', got '{trust}'")
        if asked not in ("auto", mechanism):
            raise InputError(f"this method's release is made for '{mechanism}', not for '{asked}'")
        if mechanism == "unary" and federation.unit != "user":
            raise InputError("mechanism 'unary' protects one client's answer: it needs unit 'user'")
        return mechanism
    if asked in ("exponential", "unary"):
        raise InputError(
            f"mechanism '{asked}' does not fit a release that is a sum; allowed: auto, laplace, "
            "gaussian, discrete-laplace, discrete-gaussian"
        )
    if asked == "auto":
        mechanism = _least(federation, bound, rounds) if preferred == "least" else _plain(preferred)
        return _SHARED[mechanism] if trust == "distributed" else mechanism
    if trust == "distributed" and asked not in DIVISIBLE:
        raise InputError(
            f"mechanism '{asked}' cannot be drawn in shares; trust 'distributed' takes "
            f"{' or '.join(DIVISIBLE)}"
        )
    return asked  # type: ignore[return-value]  # Federation allows mechanisms only


def order_of(federation: Federation) -> Literal[1, 2]:
    """Which norm a run bounds whose method prefers Gaussian noise: L1 if the user wants Laplace."""
    return 1 if federation.mechanism in LAPLACIAN else 2


def _plain(preferred: Preferred) -> Mechanism:
    return "laplace" if preferred == "laplace" else "gaussian"


def _least(federation: Federation, bound: Bound, rounds: int) -> Mechanism:
    """Laplace or Gaussian, whichever has the smaller noise std; Laplace if delta = 0.

    A Laplace release clips in L1, so one member's L1 norm is compared with one's L2 norm.
    """
    if federation.delta == 0:
        return "laplace"
    multiplier = accounting.gaussian_multiplier(
        federation.epsilon, federation.delta, rounds, amplifying_rate(federation)
    )
    l1 = replace(bound, order=1).l1_sensitivity
    laplace = math.sqrt(2.0) * l1 / releases_epsilon(federation, rounds)
    return "laplace" if laplace <= multiplier * bound.sensitivity else "gaussian"


def amplifying_rate(federation: Federation) -> float:
    """The sampling rate where it amplifies privacy, else 1; see `plan.make_plan`."""
    if federation.unit == "user" and federation.trust in ("central", "distributed"):
        return federation.sampling_rate
    return 1.0


def releases_epsilon(federation: Federation, rounds: int) -> float:
    """Budget of each of `rounds` releases of a pure-DP mechanism: basic composition, amplified."""
    return accounting.exponential_epsilon(federation.epsilon / rounds, amplifying_rate(federation))
