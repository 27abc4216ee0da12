"""The commands `fedcal study ...`, and those of a study's sites."""
