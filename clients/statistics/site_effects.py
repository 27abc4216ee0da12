"""Each client's own recalibration, as moments."""

from __future__ import annotations

import numpy as np

from fedcal.core.shards import Shards
from fedcal.core.types import Floats
from fedcal.personal.at_site import recalibrated
from fedcal.personal.prior import identity_prior
from fedcal.queries import SiteEffects


def site_effects(shards: Shards, query: SiteEffects) -> Floats:
    """First and second moments of each client's parameters under the identity prior.

    Returns
    -------
    Floats
        (clients, 2 d) in units of the prior's standard deviation and variance; 0 without rows
    """
    prior = identity_prior(shards.classes)
    home = recalibrated(shards, [prior] * shards.clients)
    unit = np.diag(prior.cov)
    variance = np.diagonal(home.cov, axis1=1, axis2=2)
    second = (variance + home.parameters**2) / unit - 1.0
    moments = np.concatenate([home.parameters / np.sqrt(unit), second], axis=1)
    return np.where(shards.rows[:, None] > 0, moments, 0.0)
