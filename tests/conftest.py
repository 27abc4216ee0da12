"""Surroundings of every test: one thread, a cache of plans of its own, and a quiet Flower."""

import html
import logging
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

# Each of pytest's workers is a process: threads of theirs would wait for each other's cores. Set
# here because numpy reads it when it is imported, and workers inherit it.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

# A job of the background ignores Ctrl-C, and so would each process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="module")
def _sites_of_a_module_have_a_home(tmp_path_factory):
    """Their keys lie there, and not in the home folder of whoever calls the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDCAL_HOME", str(tmp_path_factory.mktemp("fedcal-home")))
        yield


@pytest.fixture(autouse=True)
def _sites_of_a_test_have_a_home(request, _sites_of_a_module_have_a_home, monkeypatch):
    """A test with a folder of its own starts without any site."""
    if "tmp_path" in request.fixturenames:
        folder = request.getfixturevalue("tmp_path")
        monkeypatch.setenv("FEDCAL_HOME", str(folder.with_name(f"{folder.name}-home")))


@pytest.fixture(autouse=True, scope="session")
def _quiet_flower():
    import flwr.serverapp  # noqa: F401  Flower sets its own level when it is imported

    logging.getLogger("flwr").setLevel(logging.ERROR)


@pytest.fixture(scope="module")
def quick_figures():
    """Figures beside reports are files of their contents as text: drawing takes a run's most time.

    For modules about files, commands and numbers; test_figures.py and test_report.py draw.
    """
    from fedcal.results.figures import drawing

    def save_sheets(
        sheets: Mapping[str, Any], folder: Path, suffixes: Sequence[str] = (".png", ".svg")
    ) -> list[str]:
        written = [f"{name}{suffix}" for name in sheets for suffix in suffixes]
        for name in written:
            texts = [panel.description for panel in sheets[name.partition(".")[0]].panels]
            (folder / name).write_text("\n".join(texts), "utf-8")
        return written

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "save_sheets", save_sheets)
        patch.setattr(
            drawing,
            "svgs",
            lambda sheet, *_: (
                [f"<svg>{html.escape(panel.description)}</svg>" for panel in sheet.panels],
                [f"<svg>{series}</svg>" for series, _ in sheet.legend],
            ),
        )
        yield


@pytest.fixture(autouse=True)
def no_lines_of_progress(monkeypatch):
    """Lines come after three seconds: how fast a busy machine is decides no test."""
    monkeypatch.setattr("fedcal.results.terminal._QUIET_SECONDS", 3600.0)
