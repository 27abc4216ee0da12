"""Prediction sets in a report: their guarantee and their evaluation."""
