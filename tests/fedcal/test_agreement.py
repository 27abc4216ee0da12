"""A site's own plan equals the server's, and a request that differs from it is refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from fedcal.agreement import check_request
from fedcal.errors import InputError
from fedcal.mechanisms import Noise
from fedcal.privacy import Federation
from fedcal.queries.request import Request
from fedcal.strategies import STRATEGIES, FedSGD
from fedcal.strategies.settings import settings_of
from fedcal.trust import NOISY
from fedcal.units import UNITS


def federation(**change: Any) -> Federation:
    return Federation(
        **{"clients": 12, "classes": 3, "epsilon": 1.0, "seed": 123456789, "rounds": None, **change}
    )


def asked(name: str, public: Federation) -> Request:
    """The first question, as it arrives at a site."""
    rows = {"rows_per_client": 9} if "rows_per_client" in settings_of(name) else {}
    opened = STRATEGIES[name](public, **rows).open_round(1)
    assert opened is not None
    sent = opened.request
    return Request.from_fields(sent.to_fields(), sent.context_fields())


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_site_makes_the_server_s_plan_from_public_facts(name: str) -> None:
    for trust, unit in product(NOISY, UNITS):
        public = federation(trust=trust, unit=unit)
        request = asked(name, public)
        fields = public.to_fields()
        assert "seed" not in fields
        plan = check_request(fields, request)
        assert (plan.private, plan.unit, plan.trust) == (True, unit, trust)


LOCAL = federation(trust="local")
SHARED = federation(trust="distributed", sampling_rate=0.5)


def halved(noise: Noise | None) -> Noise:
    assert noise is not None
    return replace(noise, scales=tuple(s / 2 for s in noise.scales))


@pytest.mark.parametrize(
    ("public", "change", "what"),
    [
        (LOCAL, lambda r: {"noise": halved(r.noise)}, "noise"),
        (LOCAL, lambda r: {"noise": None}, "noise"),
        (LOCAL, lambda r: {"bound": replace(r.bound, norms=(9.0, 27.0))}, "noise"),
        (LOCAL, lambda r: {"context": replace(r.context, epsilon=0.5)}, "epsilon"),
        (LOCAL, lambda r: {"context": replace(r.context, rounds=2)}, "noise"),
        (LOCAL, lambda r: {"context": replace(r.context, unit="example")}, "unit"),
        (LOCAL, lambda r: {"context": replace(r.context, trust="central")}, "trust"),
        (LOCAL, lambda r: {"context": replace(r.context, delta=1e-9)}, "delta"),
        (LOCAL, lambda r: {"context": replace(r.context, plan="0" * 64)}, "plan"),
        (LOCAL, lambda r: {"ring": replace(r.ring, grid=2 * r.ring.grid)}, "ring"),
        (LOCAL, lambda r: {"context": None}, "does not say"),
        (SHARED, lambda r: {"rate": 1.0}, "secret coin"),
        (SHARED, lambda r: {"noise": replace(r.noise, shares=2 * r.noise.shares)}, "noise"),
    ],
)
def test_a_request_that_promises_less_is_refused(
    public: Federation, change: Any, what: str
) -> None:
    request = asked("fednewton", public)
    check_request(public.to_fields(), request)
    with pytest.raises(InputError, match=what) as error:
        check_request(public.to_fields(), replace(request, **change(request)))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "other",
    [{"clients": 13}, {"epsilon": 2.0}, {"delta": 1e-6}, {"unit": "example"}, {"quorum": 0.5}],
)
def test_other_public_facts_are_noticed(other: dict[str, Any]) -> None:
    request = asked("fednewton", SHARED)
    with pytest.raises(InputError):
        check_request(replace(SHARED, **other).to_fields(), request)


@pytest.mark.parametrize(
    "change",
    [
        lambda r: {"row_rate": 2 * r.row_rate},
        lambda r: {"row_rate": 1.0},
        lambda r: {"bound": replace(r.bound, norms=(2 * r.bound.norms[0],))},
        lambda r: {"ring": replace(r.ring, grid=r.ring.grid / 2)},
    ],
)
@pytest.mark.parametrize("trust", ["central", "distributed"])
def test_rows_drawn_more_often_or_clipped_less_are_refused(trust: str, change: Any) -> None:
    public = Federation(4, 3, 5, epsilon=2.0, unit="example", trust=trust, noise_source="system")
    opened = FedSGD(public, shape="4", batch=20.0, rows_per_client=50.0).open_round(1)
    assert opened is not None
    check_request(public.to_fields(), opened.request)
    with pytest.raises(InputError, match=r"request's (ring|noise|plan) is not the one"):
        check_request(public.to_fields(), replace(opened.request, **change(opened.request)))
