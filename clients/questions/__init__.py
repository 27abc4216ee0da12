"""Questions to the clients, each with its bound and the sum that a client computes.

By an import of this package all of ours are known (`fedcal.privacy.query.QUERIES`); the module of a
question is imported when it is asked.
"""

from fedcal.privacy.query import QUERIES

KINDS = {
    "conformal": ("set_counts", "set_gaps", "set_ranks"),
    "histograms": ("bin_outcomes", "class_counts", "class_histograms", "pooled_histograms"),
    "scaling": ("mlp_update", "scaling_gradients", "scaling_newton", "scaling_update"),
    "score_cell": ("score_cell",),
    "scores": ("score_counts",),
    "search": ("accuracy_gap", "calibration_gaps", "clipped_nll"),
    "temperature": (*("temperature_newton", "temperature_scores", "temperature_update"),),
    "training": ("gradients", "local_update", "weighted_update"),
}
"""Module -> kinds of its questions."""

QUERIES.data |= {kind: f"{__name__}.{name}" for name, kinds in KINDS.items() for kind in kinds}
