"""Packages and their folders; everything else about the package stands in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import find_packages, setup

shutil.rmtree(Path(__file__).parent / "build", ignore_errors=True)  # it would be packaged again

# the folder `clients` beside this file is imported as `fedcal.clients`; `experiments` stays here
folders = {"fedcal": "fedcal", "fedcal.clients": "clients", "fedcal.strategies": "strategies"}
inner = [f"{name}.{part}" for name, folder in folders.items() for part in find_packages(folder)]
setup(packages=[*folders, *inner], package_dir=folders)
