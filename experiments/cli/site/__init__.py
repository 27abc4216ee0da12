"""The commands `fedcal site ...`."""
