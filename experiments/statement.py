"""The privacy record of a run: numbers for scripts, and sentences for people."""

from __future__ import annotations

import math
from typing import Any

from fedcal.privacy.plan import Plan

TEST_ROWS = (
    "The metrics, reliability data and probabilities of the test rows are exact and not private: "
    "for the researcher's eyes."
)
HELD_OUT = (
    "The test rows were held out of the same clients' rows, and what tells how good the calibrator "
    "is, is an exact function of them, which no epsilon bounds: before, after and intervals "
    "(result.json), test (rounds.jsonl), reliability.json, test_probs.npy, report.html and its "
    "figures."
)
NOT_NATURAL = (
    "{} names {} clients of its own; this run dealt its rows out by {} instead (partition "
    "'natural' uses them)."
)


def without_privacy(
    trust: str,
    unit: str,
    said: str,
    releases: int = 0,
    secure_aggregation: str = "none",
    tested: bool = True,
) -> dict[str, Any]:
    """The record of a run without differential privacy.

    Parameters
    ----------
    trust, unit : as in `Plan`; trust "pooled" where all rows lay in one place
    said : what was released, in a sentence
    releases : how many releases there were
    secure_aggregation : "masks" or "none"
    tested : whether there are test rows, of which exact numbers are told
    """
    return {
        "unit": unit,
        "adjacency": "zero-out",
        "trust": trust,
        "epsilon": None,
        "delta": None,
        "mechanism": "none",
        "noise_std": 0.0,
        "noise_source": "none",
        "releases": releases,
        "statement": [said, *_of_tests(tested, TEST_ROWS)],
        **_open_to_whom(trust, releases, secure_aggregation, tested),
    }


_CHOOSING = (
    "Choosing: picking a method, a clip bound or a seed after looking at results is itself a "
    "release, and not counted. A ledger counts runs, not looks."
)
_TESTS = (
    "Test metrics (those after each release, too), reliability data and test probabilities are "
    "exact."
)


def _of_tests(tested: bool, sentence: str) -> list[str]:
    """A sentence about test rows, where there are any."""
    return [sentence] if tested else []


def _open_to_whom(
    trust: str, releases: int, secure_aggregation: str, tested: bool
) -> dict[str, Any]:
    """Who sees what of a run without differential privacy, and what nothing protects."""
    masks = secure_aggregation == "masks"
    if trust == "pooled":
        sees = [("the place where the rows are pooled", "All rows and labels of everybody.")]
    elif releases:
        server = "The exact sums of all rounds, over masked contributions, and who answered."
        if not masks:
            server = (
                "Each client's own contribution, since this run used no masks, and so the exact "
                "sums of all rounds; and who answered."
            )
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
        *_of_tests(tested, _TESTS),
        "The number of clients, the method and its parameters are public.",
    ]
    if trust == "pooled":
        lost.insert(0, "Every row: they were collected in one place.")
    elif releases:
        what = "an exact sum less those of all others is that client's contribution."
        given = "" if masks else "the server got its contribution as it is, and "
        lost.insert(0, f"Any client: {given}{what}")
    noise = "No noise is added."
    return {"sees": _table(*sees, _analyst(tested)), "not_protected": lost, "noise": noise}


def _analyst(tested: bool) -> tuple[str, str]:
    """Who runs a simulation, and what that tells."""
    exact = "every exact number, and the test metrics" if tested else "and every exact number"
    return "who runs the simulation", f"Everything: all rows, the seed, {exact}."


def _table(*rows: tuple[str, str]) -> list[dict[str, str]]:
    return [{"who": who, "what": what} for who, what in rows]


def of_plan(
    plan: Plan,
    releases: int,
    secure_aggregation: str,
    rows_per_client: float | None,
    tested: bool = True,
) -> dict[str, Any]:
    """The record of a federated run.

    Parameters
    ----------
    plan : what was planned, and so what the whole run spends
    releases : how many releases there were
    secure_aggregation : "masks" or "none"
    rows_per_client : the nominal number that set the clip bound, if one did
    tested : whether there are test rows, of which exact numbers are told
    """
    if not plan.private:
        said = "No differential privacy: the exact sums are released."
        return without_privacy(plan.trust, plan.unit, said, releases, secure_aggregation, tested)
    std = plan.noise_std
    return {
        "unit": plan.unit,
        "adjacency": plan.adjacency,
        "trust": plan.trust,
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "mechanism": plan.mechanism,
        "noise_std": None if std is None else std[0] if len(set(std)) == 1 else list(std),
        "noise_source": plan.noise_source,
        "releases": releases,
        "noise_multiplier": plan.multiplier or None,
        "zcdp_noise_multiplier": plan.zcdp_multiplier,
        "event": plan.event,
        "statement": [
            *_guarantee(plan, secure_aggregation, rows_per_client),
            *_of_tests(tested, TEST_ROWS),
        ],
        "sees": _sees(secure_aggregation, tested),
        "not_protected": _not_protected(plan, rows_per_client, tested),
        "noise": _noise(plan),
    }


def _sees(secure_aggregation: str, tested: bool) -> list[dict[str, str]]:
    """Who sees what of a private run."""
    client = "The server's questions, which tell the earlier releases; no row of anybody else."
    if secure_aggregation == "masks":
        client += " The names of the clients that it shares masks with."
        server = (
            "The exact sum of each round, over masked contributions, and who answered. It is "
            "trusted to add the noise and to forget the sum."
        )
    else:
        server = (
            "Each client's bounded contribution, since this run used no masks, and so the exact "
            "sums. It is trusted to add the noise and to forget them."
        )
    results = "The noisy releases and the calibrator: what epsilon and delta bound."
    if tested:
        results = (
            "The noisy releases (values in rounds.jsonl) and the calibrator: what epsilon and "
            "delta bound. Exact test metrics (result.json, test in rounds.jsonl, ...): they "
            "bound none of these."
        )
    return _table(
        ("another client", client),
        ("the server", server),
        ("who reads the results", results),
        _analyst(tested),
    )


def _not_protected(plan: Plan, rows_per_client: float | None, tested: bool) -> list[str]:
    """What the guarantee does not cover, in whole sentences."""
    rows = []
    if rows_per_client is not None:
        rows.append(
            "The number of fit rows of the simulated data, unless rows_per_client is given: "
            "rows_per_client and the noise scales (noise_std) tell it exactly."
        )
    return [
        *_of_tests(tested, _TESTS),
        "The number of clients, the method and its parameters (clip bounds, rounds) are public.",
        *rows,
        "Who takes part, who fails to answer and when: the server and the network see it.",
        f"A {plan.unit} is one client: somebody with rows at k clients has k times the epsilon "
        "and more delta.",
        "What is true of people in general: a release may tell it whether or not they took part.",
        "Further runs on the same clients: each adds its epsilon to this one.",
        _CHOOSING,
        "The seed: whoever has it can subtract the noise, and it stands wherever the configuration "
        "is written.",
    ]


def _noise(plan: Plan) -> str:
    """Where the noise comes from and what it is added to."""
    if plan.mechanism == "exponential":
        what = "The released value is drawn at random (exponential mechanism) by the server"
    else:
        what = "Gaussian noise is added to each sum by the server, once, after the secure sum"
    if plan.noise_source != "seeded":
        return f"{what}. Its source: {plan.noise_source}."
    return (
        f"{what}. Its source is a seeded generator (Philox): repeatable, so a simulation of "
        "protection and no protection against who knows the seed."
    )


def _guarantee(plan: Plan, secure_aggregation: str, rows_per_client: float | None) -> list[str]:
    """What is promised to whom, in whole sentences."""
    what = "The one release is" if plan.rounds == 1 else f"All {plan.rounds} releases together are"
    odds = math.exp(plan.epsilon) if plan.epsilon < 700 else math.inf
    server = "the exact sums"
    if secure_aggregation != "masks":
        server = "each client's bounded contribution, and so the exact sums,"
    said = [
        f"{what} ({plan.epsilon:g}, {plan.delta:g})-DP for each user: removing all rows of one "
        f"client changes the odds of any outcome by a factor of at most {odds:.4g}, except with "
        f"probability {plan.delta:g}.",
        f"The server sees {server} and is trusted to forget them; everyone else sees releases "
        "only.",
        "Seeded noise protects nobody who knows the seed, and the seed stands wherever the "
        "configuration is written (config.toml, result.json): this is a simulation.",
        "The number of clients, the method and its parameters are taken as public.",
    ]
    if rows_per_client is not None:
        said.append(
            f"rows_per_client = {rows_per_client:g} sets the clip bound. Unless it is given, it "
            "is rows / clients of the simulated data: then it and the noise scales tell the exact "
            "number of fit rows, which no epsilon covers. A deployment must choose it without "
            "looking."
        )
    if plan.sampling_rate < 1:
        seen = "the server and, with masks, against sampled clients, who learn each other's names"
        said.append(
            "The epsilon counts on who was sampled staying secret: it does not hold against "
            f"{seen if secure_aggregation == 'masks' else 'the server'}."
        )
    if plan.delta >= 1 / plan.clients:
        said.append(large_delta(plan))
    return said


def large_delta(plan: Plan) -> str:
    """Why this delta is too large."""
    return (
        f"delta = {plan.delta:g} is not below 1/clients = {1 / plan.clients:g}: publishing one "
        "random user's rows would satisfy it"
    )
