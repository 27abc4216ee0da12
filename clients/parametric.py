"""Statistics of scaling calibrators with a vector of parameters."""

from __future__ import annotations

import numpy as np

from fedcal.calibrators.parametric import LocalLosses, ParametricScaling, local_fits, rows_of
from fedcal.errors import InputError
from fedcal.queries import ScalingNewton, ScalingUpdate
from fedcal.queries.scaling import form_of
from fedcal.shards import Shards
from fedcal.types import Floats


def scaling_update(shards: Shards, query: ScalingUpdate) -> Floats:
    """u_k = w - w_k, how far the client's own optimum is from the global parameters w.

    (Maddock et al., Algorithm 2 and B.2.) A client without rows sends zeros. What is sent is
    one optimum for each client; the plan's bound clips it afterwards.

    Returns
    -------
    Floats
        (clients, size) or, with `count`, (clients, size + 1)
    """
    form, w = _form(shards, query), query.w
    update = w - local_fits(form, shards, w, proximal=query.proximal, steps=query.steps)
    if not query.count:
        return update
    return np.column_stack([update, shards.rows > 0])


def scaling_newton(shards: Shards, query: ScalingNewton) -> Floats:
    """Gradient and Gauss-Newton curvature, at w, of the client's summed negative log-likelihood.

    Ours: sums, not optima, so that the federation's sum is that of the pooled rows, however they
    are dealt.

    Returns
    -------
    Floats
        (clients, size + curvature) in nats: size (size + 1) / 2 numbers of curvature, size, or none
    """
    form, w, wanted = _form(shards, query), query.w, query.curvature
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


def _form(shards: Shards, query: ScalingUpdate | ScalingNewton) -> type[ParametricScaling]:
    """The kind of scaling that is asked about; InputError if its parameters fit no such rows."""
    form = form_of(query.form)
    if query.w.shape != (form.size(shards.classes),):
        raise InputError(
            f"{form.kind} scaling of {shards.classes} classes has {form.size(shards.classes)} "
            f"parameters, the query has {query.w.size}"
        )
    return form
