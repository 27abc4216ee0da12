"""A request as the records of a message, whole: for simulated clients, which have no terms.

A real site takes all but the question from its own terms (`fedcal.privacy.request.Asked`).
"""

from collections.abc import Mapping
from typing import Any

from fedcal.core.checks import damaged, one_of
from fedcal.mechanisms import FORMER, MECHANISMS, Noise
from fedcal.privacy.request import Context, Field, Request, facts_of, params_of, query_in
from fedcal.secure_aggregation import Ring
from fedcal.units.bounding import Bound


def to_fields(request: Request) -> dict[str, Field]:
    """Return flat scalars and lists for a Flower `ConfigRecord`, for `from_fields`."""
    fields: dict[str, Field] = {
        "kind": request.query.kind,
        "round": request.round,
        "lengths": list(request.bound.lengths),
        "norms": list(request.bound.norms),
        "rule": request.bound.rule,
        "clients": request.ring.clients,
        "grid": request.ring.grid,
        "headroom": request.ring.headroom,
    }
    if request.bound.order != 2:
        fields["order"] = request.bound.order
    if request.bound.per != "client":
        fields["per"] = request.bound.per
    if request.bound.whole:
        fields["whole"] = True
    if request.noise is not None:
        fields["noise"] = request.noise.mechanism.name
        fields["noise-lengths"] = list(request.noise.lengths)
        fields["noise-scales"] = list(request.noise.scales)
        fields["noise-shares"] = request.noise.shares
    if request.rate < 1:
        fields["rate"] = request.rate
    if request.row_rate < 1:
        fields["row-rate"] = request.row_rate
    if request.seed is not None:
        fields["seed"] = request.seed
    return fields | params_of(request.query)


def context_fields(request: Request) -> dict[str, Field]:
    """Return the record beside it: versions, public facts of the question, and the context."""
    fields = facts_of(request.query)
    if request.context is not None:
        fields |= vars(request.context)
    return fields


def from_fields(fields: Mapping[str, Any], context: Mapping[str, Any]) -> Request:
    """Return the request of `to_fields` and `context_fields` records.

    Raises InputError if a field is missing or invalid, or a version is unknown.
    """
    with damaged("a query cannot be read"):
        return Request(
            query=query_in(fields, context),
            bound=Bound(
                tuple(int(n) for n in fields["lengths"]),
                tuple(float(c) for c in fields["norms"]),
                fields["rule"],
                fields.get("order", 2),
                fields.get("per", "client"),
                bool(fields.get("whole", False)),
            ),
            ring=Ring(int(fields["clients"]), float(fields["grid"]), int(fields["headroom"])),
            round=int(fields["round"]),
            noise=_noise(fields),
            rate=float(fields.get("rate", 1.0)),
            row_rate=float(fields.get("row-rate", 1.0)),
            seed=int(fields["seed"]) if "seed" in fields else None,
            context=_context(context),
        )


def payload_bytes(request: Request) -> int:
    """Return the bytes of the question without the context: 8 per number, 1 per character."""
    return sum(
        len(v) if isinstance(v, str) else 8 * len(v) if isinstance(v, list) else 8
        for v in to_fields(request).values()
    )


def _context(fields: Mapping[str, Any]) -> Context | None:
    """Return the context, or None if no field is there; if one is there, all must be."""
    names = tuple(Context.__dataclass_fields__)
    if not any(name in fields for name in names):
        return None
    return Context(**{name: fields[name] for name in names})


def _noise(fields: Mapping[str, Any]) -> Noise | None:
    if "noise" not in fields:
        return None
    name = fields["noise"]
    now = FORMER.get(name, name) if isinstance(name, str) else name
    return Noise(
        MECHANISMS[one_of("noise", now, MECHANISMS)],
        tuple(int(n) for n in fields["noise-lengths"]),
        tuple(float(s) for s in fields["noise-scales"]),
        int(fields["noise-shares"]),
    )
