"""Only checks: everything about the package stands in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import setup

home = Path(__file__).resolve().parent
rooms = ("clients", "strategies", "experiments")
if lost := [room for room in rooms if not (home / "fedcal" / room / "__init__.py").is_file()]:
    raise SystemExit(
        f"fedcal: no links fedcal/{{{','.join(lost)}}} to the folders of those names; "
        "`git config core.symlinks true && git checkout -- fedcal` makes them"
    )
shutil.rmtree(home / "build", ignore_errors=True)  # what was packaged once would be again
setup()
