"""The four packages are one project, and three of them have everyday names."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("fedcal", "clients", "strategies", "experiments")


def require_neighbours(*names: str) -> None:
    """Refuse to work with somebody else's `clients`, `strategies` or `experiments`.

    Raises
    ------
    ImportError
        One line that names the package, where it was found and where it belongs.
    """
    home = Path(__file__).resolve().parent.parent
    for name in names or PACKAGES:
        spec = find_spec(name)
        found = Path(spec.origin).resolve() if spec and spec.origin else None
        if found != home / name / "__init__.py":
            raise ImportError(
                f"the package '{name}' belongs beside fedcal in {home}, but Python finds "
                f"{found or 'none'}: rename or remove the other one, or install fedcal again"
            )
