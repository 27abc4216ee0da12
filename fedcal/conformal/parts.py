"""What prediction sets may have thresholds of their own for."""

from __future__ import annotations

BY = ("none", "class", "group")
"""Nothing; each label; or each group of rows."""
