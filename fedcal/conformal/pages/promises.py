"""What is proven of prediction sets, in sentences."""

from __future__ import annotations

import math

from fedcal.conformal.aims import Aim
from fedcal.conformal.set_release import Goal, SetRelease

SOURCE = "This counts on source being the shares of labels of the clients' rows."


def of_whom(goal: Goal, by: str, whose: str, aim: Aim | None = None) -> str:
    """What a goal promises, as a sentence that ends with whose rows it is about."""
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
    """Return a promise that clipping may break with its condition, and with the worst case.

    Parameters
    ----------
    promise
        the sentence
    sure
        coverage that holds whatever the rows are, where no client has more than `rows`; None =
        none is known
    """
    worst = "whatever the rows are, nothing is sure"
    if sure is not None:
        least = math.floor(1000 * sure) / 1000
        worst = f"whatever the rows are, {least:g} is sure if no client has more than {rows:g}"
    return f"{promise.removesuffix('.')}, as long as clipping cuts off no misses; {worst}."


def of_release(release: SetRelease, goal: Goal, by: str, aim: Aim | None) -> tuple[str, ...]:
    """What holds for thresholds that are read from a release of counts."""
    found = [of_whom(goal, by, release.whose, aim)]
    if by == "class":
        found.append("So it holds for any shares of labels, and under any label shift.")
    if aim is not None and aim.counted:
        found.append(
            "This counts on nothing but label shift: weights are of counted labels, and what their "
            f"noise may do to coverage, {release.shift(aim):.4f} in the mean, is taken off alpha."
        )
    elif aim is not None and aim.source:
        found.append(SOURCE)
    if release.rows is not None:
        found.append(
            f"The number of rows, {release.rows:,}, was taken for public and exact: with another "
            "one this does not hold."
        )
    return tuple(found)
