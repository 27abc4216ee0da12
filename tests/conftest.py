"""What every test needs: a cache of plans of its own, and a quiet Flower."""

from __future__ import annotations

import logging

import pytest


@pytest.fixture(autouse=True, scope="session")
def _plans_are_cached_for_the_session(tmp_path_factory: pytest.TempPathFactory) -> None:
    patch = pytest.MonkeyPatch()
    patch.setenv("FEDCAL_CACHE", str(tmp_path_factory.mktemp("plans")))


@pytest.fixture(autouse=True, scope="session")
def _quiet_flower() -> None:
    import flwr.serverapp  # noqa: F401  Flower sets its own level when it is imported

    logging.getLogger("flwr").setLevel(logging.ERROR)
