"""The files of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from fedcal.experiments.runs.files import to_json, write_folder


def save(content: Mapping[str, Any], options: Mapping[str, Any] | None, out: Path) -> None:
    """Write `plan.json`, and `config.toml` for `simulate --config` where there is advice."""

    def write(folder: Path) -> None:
        (folder / "plan.json").write_text(to_json(content), "utf-8")
        if options is not None:
            (folder / "config.toml").write_text(tomli_w.dumps(options), "utf-8")

    write_folder(out, write, stale=("config.toml",))
