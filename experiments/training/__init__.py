"""Models trained over clients by a method, with their data."""

from __future__ import annotations
