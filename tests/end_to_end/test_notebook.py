"""Notebooks run, print what they are stored with, and tell nothing of who ran them.

Those of `examples/` end in assertions of their own.
"""

import base64
import getpass
import importlib.util
import json
import os
import re
import socket
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = sorted((DOCS.parent / "examples").glob("*.ipynb"))
NOTEBOOKS = [*sorted((DOCS / "notebooks").glob("*.ipynb")), *EXAMPLES]
assert len(EXAMPLES) == 3

LARGEST, MOST_CELLS = 300 * 1024, 40
TYPES = {"stream", "display_data", "execute_result"}

every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def printed(cell: Any) -> str:
    return "".join("".join(o["text"]) for o in cell["outputs"] if o["output_type"] == "stream")


def numbers(text: str) -> list[float]:
    return [float(n) for n in re.findall(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?", text)]


def words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z_]{2,}", text)


def runner() -> ModuleType:
    for package in ("nbclient", "ipykernel", "nbformat"):
        pytest.importorskip(package)
    spec = importlib.util.spec_from_file_location("run_notebook", DOCS / "run_notebook.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.filterwarnings("default::DeprecationWarning", "default::ResourceWarning")
@every_notebook
def test_it_runs_and_prints_what_it_is_stored_with(path):
    """About 6 s each. What differs is stored anew by `python docs/run_notebook.py`."""
    stored, executed = read(path), runner().execute(path)
    for old, new in zip(code_cells(stored), code_cells(executed), strict=True):
        assert [o["output_type"] for o in old["outputs"]] == [
            o["output_type"] for o in new["outputs"]
        ]
        assert words(printed(old)) == words(printed(new))
        # `exp` differs between machines, in the last bits
        assert numbers(printed(old)) == pytest.approx(numbers(printed(new)), rel=1e-2)


@every_notebook
def test_it_is_stored_with_clean_outputs_that_tell_nothing_of_who_ran_it(path):
    notebook = read(path)
    assert path.stat().st_size < LARGEST
    assert len(notebook["cells"]) <= MOST_CELLS
    cells = code_cells(notebook)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        assert cell["metadata"] == {}
        for output in cell["outputs"]:
            assert output["output_type"] in TYPES
            assert output.get("name", "stdout") == "stdout"  # no warnings
            if "image/png" in output.get("data", {}):
                png = base64.b64decode("".join(output["data"]["image/png"]))
                assert png.startswith(b"\x89PNG")
    if path in EXAMPLES:
        assert sum(line.startswith("assert ") for line in cells[-1]["source"]) >= 3
    text = path.read_text("utf-8")
    assert set(notebook["metadata"]) == {"kernelspec", "language_info"}
    assert notebook["metadata"]["language_info"] == {"name": "python"}
    secrets = {str(DOCS.parent), os.path.expanduser("~"), socket.gethostname()}
    for secret in {s for s in secrets if len(s) > 3} | {f"/home/{getpass.getuser()}"}:
        assert secret not in text
    assert re.findall(r"(?:/tmp|/root|/home|/Users|C:\\\\)\S*", text) == []
