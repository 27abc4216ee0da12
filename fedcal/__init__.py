"""fedcal: private, federated calibration of classifiers.

The science, without Flower: shards, calibrators, metrics, secure aggregation, privacy. Three rooms
stand above it: `fedcal.clients` computes contributions, `fedcal.strategies` asks and learns,
`fedcal.experiments` runs and shows. Their folders lie beside this one; links make them importable.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedcal.experiments import (
        Comparison,
        SimulationResult,
        compare,
        evaluate,
        plan,
        simulate,
    )

__version__ = "0.1.0"
__all__ = [
    "Comparison",
    "SimulationResult",
    "__version__",
    "compare",
    "evaluate",
    "plan",
    "simulate",
]

for _room in ("clients", "strategies", "experiments"):
    if not (Path(__file__).parent / _room / "__init__.py").is_file():
        raise ImportError(
            f"fedcal/{_room} is no link to the folder {_room}/: this checkout has no symlinks; "
            "`git config core.symlinks true && git checkout -- fedcal` makes them"
        )


def __getattr__(name: str) -> Any:
    """The main functions, imported on first use: `import fedcal` waits for nothing."""
    if name in __all__:
        return getattr(import_module("fedcal.experiments"), name)
    raise AttributeError(f"module 'fedcal' has no attribute {name!r}")
