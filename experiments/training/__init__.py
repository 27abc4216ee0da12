"""Base models trained federatedly, by Flower's FedAvg: what calibration begins with."""

from __future__ import annotations
