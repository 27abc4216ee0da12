"""Execute the notebooks and store them with their outputs: `python docs/run_notebook.py`.

Only what a reader sees is stored: no times, no names of machines, no paths.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

HOME = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted([*HOME.glob("docs/notebooks/*.ipynb"), *HOME.glob("examples/*.ipynb")])

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def execute(path: Path) -> Any:
    """Run the notebook at `path` in an empty folder; its errors are raised here."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as sockets, tempfile.TemporaryDirectory() as empty:
        # Sockets in a folder of our own, not network ports.
        sockets_only = Config(KernelManager={"transport": "ipc", "ip": f"{sockets}/s"})
        client = NotebookClient(
            notebook,
            config=sockets_only,
            kernel_name="python3",
            timeout=120,
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": empty}},
        )
        client.execute(env=_environment(str(HOME)))
    notebook.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(notebook.cells, 1):
        cell.id = f"cell-{number:02d}"
        cell.metadata = nbformat.from_dict({})
    return notebook


def _environment(home: str) -> dict[str, str]:
    """Return an environment that finds fedcal and ignores the user's IPython set-up."""
    search = [home, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(search),
        "IPYTHONDIR": tempfile.gettempdir(),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }


def main() -> None:
    """Run every notebook and write it back."""
    for path in NOTEBOOKS:
        nbformat.write(execute(path), path)
        sys.stdout.write(f"{path.name}: {path.stat().st_size / 1024:.0f} KiB\n")


if __name__ == "__main__":
    main()
