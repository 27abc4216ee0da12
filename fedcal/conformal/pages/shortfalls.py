"""Where test rows are covered less than they should be, by more than chance, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedcal.conformal.aims import Aim
from fedcal.conformal.basis import Basis, fewer_than_chance
from fedcal.conformal.judged import ALL, Covered, Judged
from fedcal.conformal.pages.page import FEW_CLASSES, percent, shown
from fedcal.core.classes import called

LEVEL = 0.025
"""Probability with which chance alone gives a warning, about the whole, or about the parts."""

SHORT = "Sets cover"
"""How the sentence about all rows begins."""

_MOST = 5
"""Parts that a sentence names, the worst first."""


def shortfalls(
    found: Judged,
    alpha: float,
    promised: Mapping[str, Sequence[str]],
    basis: Basis | None,
    names: Sequence[str] | None = None,
    aim: Aim | None = None,
    fit_rows: int | None = None,
) -> list[str]:
    """Compare coverage of test rows with what was asked for.

    Rows that the threshold was made of, and test rows, both vary by chance (see
    `fewer_than_chance`). Test rows are taken as independent, except that those of many clients
    count as fewer where they are alike (`Judged.alike`). Of several parts each is tested at a level
    divided by their number.

    Parameters
    ----------
    found
        coverage of test rows
    alpha
        the share of rows whose label may be missing
    promised
        "class", "site", "group" -> names of the parts with a threshold of their own, in the order
        of the thresholds
    basis
        how many rows thresholds were made of; None = nobody knows
    names
        of the classes
    aim
        where rows count by their label; coverage is not what is promised then
    fit_rows
        how many the run was on, where there is no basis; None = nobody knows
    """
    if aim is not None:
        return []
    short, wanted = [], percent(1.0 - alpha)
    if not promised:
        whole = found.by["whole"][ALL]
        made_of = basis.ends(-1)[0] if basis else fit_rows  # of all, or of no group
        if _falls_short(whole, alpha, made_of, LEVEL, found.alike):
            short.append(
                f"{SHORT} {shown(whole)} of the test rows, less than the {wanted} asked for, "
                "by more than chance: what is promised is for rows like the clients', and these "
                "test rows are harder, or differ in another way."
            )
    for kind in dict.fromkeys(("class", *promised)):
        parts, own = found.by.get(kind, {}), promised.get(kind, ())
        if not own and found.classes > FEW_CLASSES:
            continue
        least = {name: basis.ends(k)[0] for k, name in enumerate(own)} if basis else {}
        level = LEVEL / max(1, len(parts))
        worst = sorted(
            (
                name
                for name, part in parts.items()
                if _falls_short(part, alpha, least.get(name), level, found.alike)
            ),
            key=lambda name: parts[name].coverage,
        )
        if worst:
            told = [
                f"{called(names, int(name)) if kind == 'class' else name} {shown(parts[name])}"
                for name in worst[:_MOST]
            ]
            more = f" and {len(worst) - _MOST} more" if len(worst) > _MOST else ""
            short.append(f"Covered less than {wanted} of the time: {', '.join(told)}{more}. ")
            short[-1] += _OWN if own else _POOLED
            if not own and not promised:
                short[-1] += _ADVICE
    return short


_OWN = "That is less than was promised to each by itself, by more than chance."
_POOLED = "The promise is about the rows of all classes together."
_ADVICE = " --set by=class covers each class by itself; it takes enough rows of each."


def _falls_short(
    part: Covered, alpha: float, made_of: float | None, level: float, alike: float
) -> bool:
    rows = part.rows / alike
    return fewer_than_chance(part.coverage * rows, rows, alpha, made_of) < level
