"""Prediction sets in a report: what is proven of them, and what they are worth."""
