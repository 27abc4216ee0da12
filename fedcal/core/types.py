"""Names for the kinds of array that pass through the project, and the mark of an override."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from typing_extensions import override as override  # typeshed has it: no dependency
else:
    _F = TypeVar("_F", bound=Any)

    def override(method: _F) -> _F:
        """Mark a method that overrides a documented one; as `typing.override` of Python 3.12."""
        return method


Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Words: TypeAlias = NDArray[np.uint64]
"""Integers mod 2**64: what secure aggregation adds."""
