"""Warnings of test rows with too little coverage, by more than chance, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedcal.conformal.aims import Aim
from fedcal.conformal.basis import Basis, fewer_than_chance
from fedcal.conformal.judged import ALL, Covered, Judged
from fedcal.conformal.pages.page import FEW_CLASSES, percent, shown
from fedcal.core.classes import called

LEVEL = 0.025
"""Probability with which chance alone gives a warning of all rows, or of the parts."""

SHORT = "Sets cover"
"""Beginning of the sentence about all rows."""

_MOST = 5
"""Parts that a sentence names, the lowest coverage first."""


def shortfalls(
    result: Judged,
    alpha: float,
    promised: Mapping[str, Sequence[str]],
    basis: Basis | None,
    names: Sequence[str] | None = None,
    aim: Aim | None = None,
    fit_rows: int | None = None,
) -> list[str]:
    """Return a warning for each shortfall of coverage on test rows.

    Both the rows behind the threshold and the test rows vary by chance (see `fewer_than_chance`).
    Test rows are treated as independent, except that alike rows of many clients count as fewer
    (`Judged.alike`). Of several parts each is tested at a level divided by their number.

    Parameters
    ----------
    result
        coverage of test rows
    alpha
        fraction of rows whose label may be missing
    promised
        "class", "site", "group" -> names of the parts with their own threshold, in the order of the
        thresholds
    basis
        number of rows behind the thresholds; None = unknown
    names
        of the classes
    aim
        goal where rows are weighted by their label; then coverage is not what is guaranteed
    fit_rows
        number of rows of the run, where there is no basis; None = unknown
    """
    if aim is not None:
        return []
    short, wanted = [], percent(1.0 - alpha)
    if not promised:
        whole = result.by["whole"][ALL]
        made_of = basis.ends(-1)[0] if basis else fit_rows  # of all, or of no group
        if _falls_short(whole, alpha, made_of, LEVEL, result.alike):
            short.append(
                f"{SHORT} {shown(whole)} of the test rows, less than the requested {wanted}, "
                "by more than chance: the guarantee is for rows like the clients', and these test "
                "rows are harder, or differ in another way."
            )
    for kind in dict.fromkeys(("class", *promised)):
        parts, own = result.by.get(kind, {}), promised.get(kind, ())
        if not own and result.classes > FEW_CLASSES:
            continue
        least = {name: basis.ends(k)[0] for k, name in enumerate(own)} if basis else {}
        level = LEVEL / max(1, len(parts))
        worst = sorted(
            (
                name
                for name, part in parts.items()
                if _falls_short(part, alpha, least.get(name), level, result.alike)
            ),
            key=lambda name: parts[name].coverage,
        )
        if worst:
            listed = [
                f"{called(names, int(name)) if kind == 'class' else name} {shown(parts[name])}"
                for name in worst[:_MOST]
            ]
            more = f" and {len(worst) - _MOST} more" if len(worst) > _MOST else ""
            short.append(f"Covered less than {wanted} of the time: {', '.join(listed)}{more}. ")
            short[-1] += _OWN if own else _POOLED
            if not own and not promised:
                short[-1] += _ADVICE
    return short


_OWN = "That is less than the guarantee for each by itself, by more than chance."
_POOLED = "The guarantee is for the rows of all classes together."
_ADVICE = " --set by=class covers each class by itself; it needs enough rows of each."


def _falls_short(
    part: Covered, alpha: float, made_of: float | None, level: float, alike: float
) -> bool:
    rows = part.rows / alike
    return fewer_than_chance(part.coverage * rows, rows, alpha, made_of) < level
