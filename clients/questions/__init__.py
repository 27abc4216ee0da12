"""Questions to the clients, each with its bound and the sum that a client computes.

Importing this package makes all of ours known (`fedcal.privacy.query.QUERIES`); `scores` and
`temperature` come with these.
"""

from fedcal.clients.questions import conformal, histograms, scaling, search, training

__all__ = ["conformal", "histograms", "scaling", "search", "training"]
