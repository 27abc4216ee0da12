"""Models trained over clients, by Flower's FedAvg or by a method of ours, with their data."""

from __future__ import annotations
