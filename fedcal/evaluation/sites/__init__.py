"""Differences between sites in a release of counts by site, and prediction for a new site."""
