"""The folder that Flower needs to run fedcal: a `pyproject.toml` alone.

Flower bundles a folder and puts it first on the search path of every process: code in it would
hide what is installed, and data in it would be left behind. So there is none, and the file
declares every key of the run config, because Flower refuses those that are not.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

import fedcal
from fedcal.core import checks
from fedcal.privacy.privacy import Federation
from fedcal.run.config import Config
from fedcal.storage import atomic
from fedcal.strategies import server_app, settings
from fedcal.strategies.server.job import Job

FILE = "pyproject.toml"

_HEADER = """\
# Written by `fedcal flower-app`, which replaces it. Where fedcal[simulation] is installed:
#     FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 flwr run . --stream
"""


def run_config() -> dict[str, settings.Plain]:
    """Every key of the run config: the defaults of `simulate`; what is 0 or "" the run fills in."""
    config = Config()
    job = Job(config.method, Federation(clients=1, classes=2))
    fields = job.to_fields() | {"clients": 0, "classes": 0, "trust": "", "input": ""}
    here = {"data": config.data, "partition": config.partition, "out": ""}
    return fields | here | server_app.FRESH


def app_toml(fields: Mapping[str, Any]) -> str:
    """Return the file for a run config; without dependencies, so that Flower installs none."""
    flower = {
        "publisher": "fedcal",
        "fab-include": [FILE],
        "components": {
            "serverapp": "fedcal.strategies.server_app:app",
            "clientapp": "fedcal.clients.client_app:app",
        },
        "config": dict(fields),
    }
    project = {
        "name": "fedcal-app",
        "version": fedcal.__version__,
        "license": "Apache-2.0",
        "dependencies": list[str](),
    }
    return tomli_w.dumps({"project": project, "tool": {"flwr": {"app": flower}}})


def write_app(folder: Path) -> Path:
    """Write the file with all defaults into `folder`, which is made if it is not there.

    Raises InputError if it cannot be written, or there is a `pyproject.toml` of somebody else's.
    """
    file = folder / FILE
    with checks.system_errors(f"cannot write {file}"):
        folder.mkdir(parents=True, exist_ok=True)
        if file.exists() and not file.read_bytes().startswith(_HEADER.encode()):
            raise checks.InputError(f"{file} is not of `fedcal flower-app`; choose another folder")
        atomic.write_file(file, _HEADER + app_toml(run_config()))
    return file
