"""One metric for the whole budget."""
