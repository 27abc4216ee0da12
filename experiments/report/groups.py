"""Sites and groups in sentences: who is not calibrated, and whom a calibrator harms."""

from collections.abc import Mapping
from typing import Any

from fedcal.core.printable import listed
from fedcal.evaluation.sites.effects import next_site_sentence
from fedcal.experiments.report import page
from fedcal.metrics.gap_change import ERROR


def sentences(result: Mapping[str, Any]) -> tuple[str, ...]:
    """Return sentences on sites or groups that are not calibrated or harmed by a calibrator.

    Miscalibrated groups are those that their gaps do not already name.

    Parameters
    ----------
    result
        keys of `result.json`, or of a saved release
    """
    said = page.words("groups", result=result, error=ERROR, listed=listed)["lines"]
    return (*said, next_site_sentence(result["next_site"])) if "next_site" in result else said
