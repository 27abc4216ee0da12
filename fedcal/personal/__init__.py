"""Recalibration at home: each site on its own rows, with what the others add as a prior."""
