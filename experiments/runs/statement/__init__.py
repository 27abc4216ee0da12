"""The privacy record of a run: the numbers of its plan, and `sentences` about it for people."""

from typing import Any

from fedcal.experiments.runs.statement import sentences
from fedcal.privacy.noise_plan import Plan
from fedcal.trust import TrustFacts, base
from fedcal.units import UNITS


def about_rows(plan: Plan, partition: str, held_out: bool, noun: str) -> list[str]:
    """Return sentences on a simulation's test rows and its unrealistic treatment of subjects.

    Parameters
    ----------
    partition
        as `--partition` takes it
    held_out
        whether the test rows were drawn from the same rows
    noun
        what the run yields
    """
    lines = sentences.of_tests(held_out, "held out", noun)
    if plan.protected.column is None or not plan.private:
        return lines
    if partition != "natural":
        lines.append(
            f"Partition {partition} deals rows, not subjects: a subject's rows may lie with "
            "several clients, where they are a subject each and have an epsilon each (partition "
            "'natural' leaves them together)."
        )
    if held_out:
        lines.append(
            "Rows were held out one by one, not by subject: a subject may have rows among the "
            "test rows, too, which no epsilon covers."
        )
    return lines


def without_privacy(
    trust: str,
    unit: str,
    sentence: str,
    releases: int = 0,
    about: TrustFacts | None = None,
    tested: bool = True,
    noun: str = "calibrator",
) -> dict[str, Any]:
    """Return the record of a run without differential privacy.

    Parameters
    ----------
    trust, unit
        as in `Plan`; trust "pooled" where all rows lay in one place,
        "one-source" where a client used its own alone
    said
        what was released, in a sentence
    releases
        how many releases there were
    about
        what clients' contributions went through; None = there were none
    tested
        whether there are test rows, of which exact numbers are told
    noun
        what the run yields
    """
    about = about or TrustFacts(clients=0, quorum=1, contribution="")
    return {
        "unit": unit,
        "adjacency": UNITS[unit].adjacency(replaces=False),
        "trust": trust,
        "epsilon": None,
        "delta": None,
        "mechanism": "none",
        "noise_std": 0.0,
        "noise_source": "none",
        "releases": releases,
        **_sums(about),
        "statement": [
            sentence,
            *base.about_committee(about),
            *sentences.of_tests(tested, "shown", noun),
        ],
        **sentences.exact_run(trust, releases, about, tested, noun),
    }


def _sums(about: TrustFacts, shared: bool = False) -> dict[str, Any]:
    """Return how contributions were added up; `shared`: their noise comes in shares."""
    return {
        "secure_aggregation": about.secure_aggregation,
        "quorum": about.quorum if shared or about.committee else None,
        "committee": list(about.committee) if about.committee else None,
        "colluding": about.colluding,
    }


def of_plan(
    plan: Plan,
    releases: int,
    secure_aggregation: str,
    rows_per_client: float | None,
    tested: bool = True,
    noun: str = "calibrator",
    real: bool = False,
) -> dict[str, Any]:
    """Return the privacy record of a federated run.

    Parameters
    ----------
    plan
        what was planned, and so what the whole run spends
    releases
        how many releases there were
    secure_aggregation
        one of `fedcal.secure_aggregation.SECURE_AGGREGATION`
    rows_per_client
        the nominal number that set the clip bound, if one did
    tested
        whether there are test rows, of which exact numbers are told
    noun
        what the run yields
    real
        whether sites took part, not the clients of a simulation

    Returns
    -------
    dict
        `noise_std` is that of the released sum if all clients that are expected answer, one number
        or one for each block. `quorum` is the fewest answers that a round is released with (None
        but for trust "distributed" and the protocol of secure aggregation), `committee` the
        protocol's members and threshold (None without it), `diameter` how many times the bound a
        neighbour may change a sum by.
    """
    about = sentences.facts(plan, secure_aggregation, real)
    if not plan.private:
        exact = "No differential privacy: the exact sums are released."
        return without_privacy(plan.trust, plan.unit, exact, releases, about, tested, noun)
    std = plan.noise_std
    return {
        "unit": plan.unit,
        "adjacency": plan.adjacency,
        "trust": plan.trust,
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "mechanism": plan.mechanism.name,
        "noise_std": None if std is None else std[0] if len(set(std)) == 1 else list(std),
        "noise_source": plan.federation.noise_source,
        "releases": releases,
        **_sums(about, plan.model.shared),
        "diameter": plan.diameter,
        "noise_multiplier": plan.multiplier or None,
        "zcdp_noise_multiplier": plan.zcdp_multiplier,
        "event": plan.event,
        "statement": [
            *sentences.promise(plan, about, rows_per_client),
            *sentences.of_tests(tested, "shown", noun),
        ],
        "sees": sentences.sees(plan, about, tested, noun),
        "not_protected": sentences.not_protected(plan, about, rows_per_client, tested, noun),
        "noise": sentences.noise(plan, about),
    }
