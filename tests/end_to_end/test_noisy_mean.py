"""`examples/noisy_mean.py` fails five checks, as `docs/guide/your-flower-app.md` says."""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from scipy.optimize import brentq

from fedcal import InProcessGrid
from fedcal.accounting import gaussian_delta

FILE = Path(__file__).parents[2] / "examples" / "noisy_mean.py"
CLIENTS = 10


@pytest.fixture
def app():
    """The names of the app: everyone is asked, with noise of a known seed."""
    names = runpy.run_path(str(FILE))["main"].__globals__
    names |= {"rng": np.random.default_rng(0), "RATE": 1.0}
    return names


def ask(app: dict[str, Any], rows: list[list[float]]) -> tuple[list[float], dict[str, Any]]:
    """Return what the noise is added to, and the result."""
    noise, covered, context = app["add_noise"], [], Context(1, 0, {}, RecordDict(), {})
    app["add_noise"] = lambda value, scale: (covered.append(value), noise(value, scale))[1]
    app["load"] = lambda context: np.array(rows[context.node_config["partition-id"]])
    app["server"](InProcessGrid(app["client"], range(1, CLIENTS + 1)), context)
    app["add_noise"] = noise
    return covered, dict(context.state["result"])


def attained(app: dict[str, Any], rows: list[float]) -> float:
    """How far one client's rows move the mean below the noise, which is scaled for 0.1."""
    others = [[-1.0]] * (CLIENTS - 1)
    return abs(ask(app, [*others, rows])[0][0] - ask(app, [*others, [0.0]])[0][0])


def test_the_divisor_is_a_private_count(app):
    assert app["CLIP"] / CLIENTS == 0.1
    assert attained(app, [1.0]) == pytest.approx(0.1)
    assert attained(app, [1.0] * 1000) == pytest.approx(1.88, abs=0.01)  # no row exceeds the clip


def test_the_clip_comes_after_the_noise(app):
    assert attained(app, [50.0]) == pytest.approx(5.0)
    assert abs(ask(app, [[50.0]] * CLIENTS)[1]["mean"]) <= 1  # the result looks clipped


def test_one_of_two_releases_is_not_counted(app):
    covered, result = ask(app, [[0.5]] * CLIENTS)
    one, both = (
        brentq(lambda e, n=n: gaussian_delta(e, app["SIGMA"], n) - app["DELTA"], 0.1, 9)
        for n in (1, len(covered))
    )
    assert result["epsilon"] == 1
    assert (one, both) == pytest.approx((0.75, 1.10), abs=0.01)


def test_the_last_bits_of_float_noise_tell_means_apart(app):
    scale = app["SIGMA"] / CLIENTS
    zero, one = (np.array([app["add_noise"](m, scale) for _ in range(2000)]) for m in (0.0, 1.0))
    off_grid = [np.mean(values * 2.0**53 % 1 != 0) for values in (zero, one)]
    assert off_grid[0] == pytest.approx(0.48, abs=0.05)
    assert off_grid[1] == 0  # one look at one such value excludes this mean


def test_the_result_names_its_participants(app):
    app["RATE"] = 0.5
    covered, result = ask(app, [[float(client)] for client in range(CLIENTS)])
    assert 0 < len(result["asked"]) < CLIENTS
    assert covered[0] == np.mean([node - 1 for node in result["asked"]])  # these, and nobody else
