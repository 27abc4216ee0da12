"""Statistics of scaling calibrators with a vector of parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedcal.calibrators.base import kinds
from fedcal.calibrators.local_fit import LocalLosses, local_fits, rows_of
from fedcal.calibrators.parametric import ParametricScaling
from fedcal.checks import one_of
from fedcal.errors import InputError
from fedcal.shards import Shards
from fedcal.types import Floats

_CURVATURES = ("full", "diagonal", "none")


def scaling_update(shards: Shards, params: Mapping[str, Any]) -> Floats:
    """u_k = w - w_k, how far the client's own optimum is from the global parameters w.

    (Maddock et al., Algorithm 2 and B.2.) A client without rows sends zeros. What is sent is
    one optimum for each client; the plan's bound clips it afterwards.

    Parameters
    ----------
    params : `form`, a kind of calibrator; `w` (size,); `proximal` and `steps` as `local_fits`
        takes them; `count`: send also 1 if the client has rows (without privacy, where the mean
        is over those)

    Returns
    -------
    (clients, size) or, with `count`, (clients, size + 1)
    """
    form, w = _form(shards, params)
    proximal, steps = float(params["proximal"]), int(params["steps"])
    update = w - local_fits(form, shards, w, proximal=proximal, steps=steps)
    if not params["count"]:
        return update
    return np.column_stack([update, shards.rows > 0])


def scaling_newton(shards: Shards, params: Mapping[str, Any]) -> Floats:
    """Gradient and Gauss-Newton curvature, at w, of the client's summed negative log-likelihood.

    Ours: sums, not optima, so that the federation's sum is that of the pooled rows, however they
    are dealt.

    Parameters
    ----------
    params : `form`, a kind of calibrator; `w` (size,); `curvature`: "full" (the upper triangle,
        row by row), "diagonal" or "none"

    Returns
    -------
    (clients, size + curvature) in nats: size (size + 1) / 2 numbers of curvature, size, or none
    """
    form, w = _form(shards, params)
    wanted = one_of("curvature", params["curvature"], _CURVATURES)
    lengths = {"none": 0, "diagonal": len(w), "full": len(w) * (len(w) + 1) // 2}
    out = np.zeros((shards.clients, len(w) + lengths[wanted]))
    rows_of(form, shards)  # computed once, carried along by `take`
    ids = np.flatnonzero(shards.rows)
    part = shards.take(ids)
    losses = LocalLosses(form, *rows_of(form, part), part.rows, w)
    at = np.tile(w, (len(ids), 1))
    out[ids, : len(w)] = losses.value(at)[1]
    if wanted == "diagonal":
        out[ids, len(w) :] = losses.diagonal(at)
    elif wanted == "full":
        out[ids, len(w) :] = losses.triangle(at)
    return out


def _form(shards: Shards, params: Mapping[str, Any]) -> tuple[type[ParametricScaling], Floats]:
    """The kind of scaling that is asked about, and its parameters."""
    forms = {k: form for k, form in kinds().items() if issubclass(form, ParametricScaling)}
    form, w = forms[one_of("form", params["form"], forms)], np.asarray(params["w"], np.float64)
    if w.shape != (form.size(shards.classes),):
        raise InputError(
            f"{form.kind} scaling of {shards.classes} classes has {form.size(shards.classes)} "
            f"parameters, the query has {w.size}"
        )
    return form, w
