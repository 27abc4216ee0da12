"""Runs: their options, what drives them, what they give back, and the files they leave."""
