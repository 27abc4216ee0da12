"""Coverage guarantees of prediction sets, in sentences."""

from __future__ import annotations

import math

from fedcal.conformal.aims import Aim
from fedcal.conformal.set_release import Goal, SetRelease

SOURCE = "This assumes that source holds the label shares of the clients' rows."


def of_whom(goal: Goal, by: str, whose: str, aim: Aim | None = None) -> str:
    """Return the guarantee of a goal, as a sentence that ends with the rows it is for."""
    if aim is not None:
        return aim.promise(goal.alpha) + ("." if aim.kind == "target" else f", {whose}")
    each = {"none": "", "class": ", for each label by itself", "group": ", in each group by itself"}
    share = f"at least {1 - goal.alpha:.4g}"
    if goal.promise == "marginal":
        return f"The label of a new row is in its set with probability {share}{each[by]}, {whose}"
    return (
        f"With probability at least {goal.confidence:.4g} over the clients' rows and the release, "
        f"the label of a new row is in its set with probability {share}{each[by]}, {whose}"
    )


def if_not_clipped(promise: str, sure: float | None, rows: float | None) -> str:
    """Return a guarantee that clipping may break, with its condition and the worst case.

    Parameters
    ----------
    promise
        the sentence
    sure
        coverage that holds for any rows, where no client has more than `rows`; None = unknown
    """
    worst = "whatever the rows are, nothing is guaranteed"
    if sure is not None:
        least = math.floor(1000 * sure) / 1000
        worst = (
            f"whatever the rows are, {least:g} is guaranteed if no client has more than {rows:g}"
        )
    return f"{promise.removesuffix('.')}, as long as clipping cuts off no misses; {worst}."


def of_release(release: SetRelease, goal: Goal, by: str, aim: Aim | None) -> tuple[str, ...]:
    """Return the guarantees for thresholds that are computed from a release of counts."""
    sentences = [of_whom(goal, by, release.whose, aim)]
    if by == "class":
        sentences.append("So it holds for any label shares, and under any label shift.")
    if aim is not None and aim.counted:
        sentences.append(
            "This assumes only label shift: weights are computed from counted labels, and the mean "
            f"loss of coverage that their noise may cause, {release.shift(aim):.4f}, is subtracted "
            "from alpha."
        )
    elif aim is not None and aim.source:
        sentences.append(SOURCE)
    if release.rows is not None:
        sentences.append(
            f"The number of rows, {release.rows:,}, was treated as public and exact: with another "
            "number this does not hold."
        )
    return tuple(sentences)
