"""A calibrator for each site: a prior from one release, the site's own rows, and a gate."""
