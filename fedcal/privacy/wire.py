"""Questions of the server as the records of a message: whole requests for simulated clients.

A real site takes all but the question from its own terms (`fedcal.privacy.query.Asked`).
"""

from collections.abc import Mapping
from dataclasses import fields as fields_of
from typing import Any

import numpy as np

from fedcal.core.checks import damaged, one_of, read
from fedcal.core.options import Options, flat_kinds
from fedcal.mechanisms import MECHANISMS, Noise
from fedcal.privacy.privacy import Federation
from fedcal.privacy.query import VERSION, Asked, Field, Query, Request, query_in
from fedcal.secure_aggregation import Ring
from fedcal.units import Bound

_USUAL: dict[str, Field] = {"order": 2, "per": "client", "whole": False}
_USUAL |= {"rate": 1.0, "row-rate": 1.0}


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
    bound = request.bound
    more: dict[str, Field] = {"order": bound.order, "per": bound.per, "whole": bound.whole}
    more |= {"rate": request.rate, "row-rate": request.row_rate}
    if request.noise is not None:
        fields["noise"] = request.noise.mechanism.name
        fields["noise-lengths"] = list(request.noise.lengths)
        fields["noise-scales"] = list(request.noise.scales)
        fields["noise-shares"] = request.noise.shares
    if request.seed is not None:
        fields["seed"] = request.seed
    return fields | {k: v for k, v in more.items() if v != _USUAL[k]} | params_of(request.query)


def from_fields(fields: Mapping[str, Any], context: Mapping[str, Any]) -> Request:
    """Return the request of `to_fields` and `facts_of` records.

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
        )


def payload_bytes(request: Request) -> int:
    """Return the bytes of the question: 8 per number, 1 per character."""
    return sum(
        len(v) if isinstance(v, str) else 8 * len(v) if isinstance(v, list) else 8
        for v in to_fields(request).values()
    )


def _noise(fields: Mapping[str, Any]) -> Noise | None:
    if "noise" not in fields:
        return None
    return Noise(
        MECHANISMS[one_of("noise", fields["noise"], MECHANISMS)],
        tuple(int(n) for n in fields["noise-lengths"]),
        tuple(float(s) for s in fields["noise-scales"]),
        int(fields["noise-shares"]),
    )


def read_fields(table: type[Options], values: Mapping[str, Any], **instead: Any) -> dict[str, Any]:
    """Return the arguments of a dataclass from what `to_fields` wrote; other keys are ignored.

    Raises InputError if a key is missing or its value is of another type.

    Parameters
    ----------
    **instead
        what 0 and "" stand for, where it is not None
    """
    known: dict[str, Any] = {}
    unset = {f.name: None for f in fields_of(table) if f.default is None} | instead
    for name, kind in flat_kinds(table).items():
        value = read(values, name.replace("_", "-"), kind)
        known[name] = value or unset.get(name, value)
    return known


def federation_of(fields: Mapping[str, Any], nodes: int = 0, classes: int = 0) -> Federation:
    """Return the federation that `Options.to_fields` wrote; other keys are ignored.

    Raises InputError if a key is missing or its value is not allowed.

    Parameters
    ----------
    nodes, classes
        what `clients` = 0 and `classes` = 0 stand for
    """
    made = Federation(**read_fields(Federation, fields, clients=nodes, classes=classes))
    made.check_quorum(made.committee > 0)
    return made


def params_of(query: Query) -> dict[str, Field]:
    """Return the parameters of a question, for a message."""
    return {
        f"param.{key}": value.tolist() if isinstance(value, np.ndarray) else value
        for key, value in query.params().items()
    }


def facts_of(query: Query) -> dict[str, Field]:
    """Return the versions and public facts of a question, which do not count as payload."""
    fields: dict[str, Field] = {"version": VERSION, "query-version": query.version}
    return fields | {f"fact.{name}": getattr(query, name) for name in query.facts}


def asked_records(asked: Asked) -> dict[str, dict[str, Field]]:
    """Return the records of a message to a real site, for `Asked.from_records`."""
    fields: dict[str, Field] = {"kind": asked.query.kind, "round": asked.round}
    context: dict[str, Field] = {"run": asked.run, "terms": asked.terms}
    return {"query": fields | params_of(asked.query), "context": context | facts_of(asked.query)}
