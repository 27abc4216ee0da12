"""Who sees what of a run, what nothing protects, and where the noise comes from."""

from __future__ import annotations

from typing import Any

from fedcal.experiments.statement.promise import facts, sets_noise
from fedcal.privacy.plan import Plan
from fedcal.trust import Facts, SecAgg

TEST_ROWS = (
    "The metrics, reliability data and probabilities of the test rows are exact and not private: "
    "for the researcher's eyes."
)
_CHOOSING = (
    "Choosing: picking a method, a clip bound or a seed after looking at results is itself a "
    "release, and not counted. A ledger counts runs, not looks."
)
_TESTS = (
    "Test metrics (those after each release, too), reliability data and test probabilities are "
    "exact."
)
_QUESTIONS = "The server's questions, which tell the earlier releases; no row of anybody else."


def of_tests(tested: bool, sentence: str) -> list[str]:
    """A sentence about test rows, where there are any."""
    return [sentence] if tested else []


def without_privacy(trust: str, releases: int, masks: bool, tested: bool) -> dict[str, Any]:
    """Who sees what of a run without differential privacy, and what nothing protects."""
    if trust == "one-source":
        sees = [("the one client", "Its own rows and its calibrator; nobody sends anything.")]
    elif trust == "pooled":
        sees = [("the place where the rows are pooled", "All rows and labels of everybody.")]
    elif releases:
        server = SecAgg.server_sees(Facts(clients=0, quorum=1, masks=masks, contribution=""))
        results = "The exact sums{} and the calibrator.".format(
            " (rounds.jsonl), exact test metrics," if tested else ""
        )
        sees = [
            ("another client", "Everything that is released: the server's next question tells it."),
            ("the server", server),
            ("who reads the results", results),
        ]
    else:
        sees = [("everybody", "Nothing about any client's rows; the calibrator learned nothing.")]
    lost = [
        *of_tests(tested, _TESTS),
        "The number of clients, the method and its parameters are public.",
    ]
    if trust == "pooled":
        lost.insert(0, "Every row: they were collected in one place.")
    elif releases:
        what = "an exact sum less those of all others is that client's contribution."
        given = "" if masks else "the server got its contribution as it is, and "
        lost.insert(0, f"Any client: {given}{what}")
    said = "No noise is added."
    return {"sees": _table(*sees, _analyst(tested)), "not_protected": lost, "noise": said}


def _analyst(tested: bool) -> tuple[str, str]:
    """Who runs a simulation, and what that tells."""
    exact = "every exact number, and the test metrics" if tested else "and every exact number"
    return "who runs the simulation", f"Everything: all rows, the seed, {exact}."


def _table(*rows: tuple[str, str]) -> list[dict[str, str]]:
    return [{"who": who, "what": what} for who, what in rows]


def sees(plan: Plan, masks: bool, tested: bool) -> list[dict[str, str]]:
    """Who sees what of a private run."""
    client = _QUESTIONS
    if masks:
        client += " The names of the clients that it shares masks with."
    client += plan.model.client_sees()
    results = "The noisy releases and the calibrator: what epsilon and delta bound."
    if tested:
        results = (
            "The noisy releases (values in rounds.jsonl) and the calibrator: what epsilon and "
            "delta bound. Exact test metrics (result.json, test in rounds.jsonl, ...): they "
            "bound none of these."
        )
    rows = [
        ("another client", client),
        ("the server", plan.model.server_sees(facts(plan, masks))),
        ("who reads the results", results),
        _analyst(tested),
    ]
    if (own := plan.protected.own_client()) is not None:
        rows.insert(0, own)
    return _table(*rows)


def not_protected(plan: Plan, rows_per_client: float | None, tested: bool) -> list[str]:
    """What the guarantee does not cover, in whole sentences."""
    rows = []
    if rows_per_client is not None:
        tell = "that tells"
        if sets_noise(plan):
            tell = "rows_per_client and the noise scales (noise_std) tell"
        rows.append(
            "The number of fit rows of the simulated data, unless rows_per_client is given: "
            f"{tell} it exactly."
        )
    more = " and more delta" if plan.delta else ""
    covered = plan.protected.covered(more)
    answering = plan.model.who_fails(plan.sampling_rate < 1)
    if plan.noise_source == "seeded":
        source = (
            "The seed: whoever has it can subtract the noise, and it stands wherever the "
            "configuration is written."
        )
    else:
        source = (
            "Who watches the machine while noise is drawn: which entry of a table is read depends "
            "on the noise, and the time of a draw may tell of it."
        )
    return [
        *of_tests(tested, _TESTS),
        "The number of clients, the method and its parameters (clip bounds, rounds) are public.",
        *rows,
        answering,
        covered,
        "What is true of people in general: a release may tell it whether or not they took part.",
        "Further runs on the same clients: each adds its epsilon to this one.",
        _CHOOSING,
        source,
    ]


def noise(plan: Plan) -> str:
    """Where the noise comes from and what it is added to."""
    if plan.noise_source == "seeded":
        return (
            f"{_added(plan)}. Its source is a seeded generator (Philox): repeatable, so a "
            "simulation of protection and no protection against who knows the seed."
        )
    return (
        f"{_added(plan)}. Its source is the operating system's generator, through tables of "
        "integers: a run with the same configuration gives other numbers."
    )


def _added(plan: Plan) -> str:
    return plan.law.sentence() or plan.model.adds(plan.law.noise, facts(plan, masks=False))
