"""`docker-compose.yml` as Compose reads it: there is no Docker here."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"


def read(environment: Mapping[str, str] | None = None, file: Path = FILE) -> dict[str, Any]:
    """The file with its variables put in, as Compose does it."""
    given = environment or {}
    text = re.sub(
        r"\$\{(\w+):-([^}]*)\}", lambda found: given.get(found[1]) or found[2], file.read_text()
    )
    content: dict[str, Any] = yaml.safe_load(text)
    return content
