"""What a run leaves under --out: the contract's files, the same bits again, and no secrets."""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up import halves, scored
from published import CLASS_ROWS, numbers_in, strict
from strategy_checks import BUDGETED

from fedcal import calibrators, datasets, simulate
from fedcal.cli.main import exit_code_of
from fedcal.core.checks import InputError
from fedcal.core.shards import Shards
from fedcal.metrics import Reliability, classwise_ece, ece, nll
from fedcal.partition import deal, numbered
from fedcal.privacy.curator import OpenRound
from fedcal.run.config import POOLED
from fedcal.run.jobs import evaluates, job_of
from fedcal.strategies import STRATEGIES, FederatedStrategy
from fedcal.strategies.settings import settings_of
from fedcal.units import UNITS

pytestmark = pytest.mark.usefixtures("quick_figures")

EACH_KIND = ("fedtemp", "fedopvector", "fednewton", "fedoneshot", "acct", "fedbbq")
"""Averages, sums of derivatives, a grid, a search and counts."""
RUNS = [
    *(("fedtemp", 1.0), ("fedtemp", math.inf), ("acct", 1.0), ("fedbbq", math.inf)),
    *(("fedopvector", 1.0), ("fedoneshot", 1.0), ("dp-platt", 1.0)),
    *((pooled, math.inf) for pooled in POOLED),
]
AGAIN = [
    *RUNS,
    *(("fednewton", 1.0), ("fedcal", 1.0), ("fedsgd", 1.0), ("fedprior", math.inf)),
    *(("evaluate", 1.0), ("conformal", 1.0)),
]
FILES = {
    *("result.json", "config.toml", "calibrator.npz", "test_probs.npy"),
    *("rounds.jsonl", "reliability.json", "report.html"),
    *("reliability.png", "reliability.svg", "classes.png", "classes.svg"),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """300 rows of overconfident logits, 4 classes."""
    logits, labels = scored(4, 300, 11, 1.0, 1.5)
    path = tmp_path_factory.mktemp("data") / "rows.npz"
    np.savez(path, logits=3 * logits, labels=labels)
    return path


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    """(method, epsilon) -> the folder of that run, made once."""
    made: dict[tuple[str, float], Path] = {}

    def make(method: str, epsilon: float) -> Path:
        if (method, epsilon) not in made:
            out = made[method, epsilon] = tmp_path_factory.mktemp("run") / "out"
            options: dict[str, Any] = {"method": method, "epsilon": epsilon, "clients": 30}
            options |= {"rounds": 2} if method == "fedsgd" else {}
            simulate(data, **options, seed=3, out=out)
        return made[method, epsilon]

    return make


@pytest.mark.parametrize(("method", "epsilon"), RUNS)
def test_files_are_the_contract_s_and_agree_with_each_other(run, data, method, epsilon):
    folder, private, rows = run(method, epsilon), epsilon < math.inf, datasets.load(data).split(3)
    curves = {"rounds.png", "rounds.svg"} if method in STRATEGIES else set()  # of what is released
    assert {p.name for p in folder.iterdir()} == FILES | curves
    result = strict((folder / "result.json").read_text("utf-8"))
    assert set(result) == {
        *("schema", "method", "config", "before", "after", "privacy", "communication"),
        *("seconds", "versions", "intervals", "score", "class_names", "rows_below_floor"),
        "brier_of_rates",
    }
    sent = result["communication"]

    # the calibrator gives the test probabilities, these the metrics
    fitted = calibrators.load(folder / "calibrator.npz")
    probs = np.load(folder / "test_probs.npy", allow_pickle=False)
    assert fitted.predict_proba(rows.test_logits).tobytes() == probs.tobytes()
    for name, metric in (("ece", ece), ("classwise_ece", classwise_ece), ("nll", nll)):
        expected = pytest.approx(metric(probs, rows.test_labels), rel=1e-12)
        assert result["after"][name] == expected
    records = [strict(line) for line in (folder / "rounds.jsonl").read_text("utf-8").splitlines()]
    assert [r["round"] for r in records] == list(range(1, sent["rounds"] + 1))
    noisy = private and result["privacy"]["mechanism"] != "exponential"
    for record in records:
        assert set(record) - {"temperature", "test"} == {"round", "query", "values", "noise_std"}
        assert any(record["noise_std"] or ()) is noisy
    tested = [record["test"] for record in records if "test" in record]
    assert len(tested) == min(24, sent["rounds"])  # of long runs some, and the last
    if records:  # the last calibrator is the result
        assert tested[-1] == {k: pytest.approx(result["after"][k], rel=1e-12) for k in tested[-1]}
    reliability = strict((folder / "reliability.json").read_text("utf-8"))
    for part, record in reliability.items():
        found = Reliability.from_json(record)
        for name in ("accuracy", "ece", "classwise_ece"):
            assert getattr(found, name) == pytest.approx(result[part][name], rel=1e-12)
    for part in ("before", "after"):
        for name in ("accuracy", "nll", "brier"):
            low, high = result["intervals"][part][name]
            assert low <= result[part][name] <= high


def bits(folder: Path) -> dict[str, bytes]:
    """Every array that a run leaves."""
    kept: dict[str, bytes] = {}
    for path in sorted(folder.glob("*.npz")):
        with np.load(path, allow_pickle=False) as arrays:
            kept |= {name: arrays[name].tobytes() for name in arrays}
    record = strict((folder / "result.json").read_text())
    for name in ("test_probs.npy", "reliability.json"):
        if (folder / name).exists():
            kept[name] = (folder / name).read_bytes()
    return kept | {
        "rounds": (folder / "rounds.jsonl").read_bytes(),
        "config": (folder / "config.toml").read_bytes(),
        "intervals": json.dumps(record.get("intervals")).encode(),
        "figures": b"".join(p.read_bytes() for p in sorted(folder.glob("*.svg"))),
    }


@pytest.mark.parametrize(("method", "epsilon"), AGAIN)
def test_the_config_of_a_run_gives_the_same_bits(run, tmp_path, method, epsilon):
    folder = run(method, epsilon)
    assert bits(ran(tmp_path / "again", "--config", str(folder / "config.toml"))) == bits(folder)


def ran(out: Path, *options: str) -> Path:
    assert exit_code_of(["simulate", *options, "--out", str(out), "--quiet"]) == 0
    return out


def test_what_was_not_given_is_resolved_anew(data, tmp_path):
    """`rows_per_client` of other clients stays behind."""
    options = ("--data", str(data), "--clients", "4", "--epsilon", "8")
    first = ran(tmp_path / "first", *options)
    config = str(first / "config.toml")
    assert "rows_per_client" not in Path(config).read_text("utf-8")
    again = ran(tmp_path / "again", "--config", config, "--partition", "iid", "--clients", "8")
    before, after = (strict((d / "result.json").read_text("utf-8")) for d in (first, again))
    fitted = 4 * before["config"]["set"]["rows_per_client"]
    assert after["config"]["set"]["rows_per_client"] == pytest.approx(fitted / 8)


WITHOUT_TEST = "alone.npz"
"""The same rows without a test part, which would be what is evaluated."""
FEDERATIONS: dict[str, dict[str, Any]] = {
    "everybody": {"clients": 307, "partition": "dirichlet:0.1"},  # some clients are empty
    "sampled": {"clients": 1511, "partition": "iid", "sampling_rate": 0.7},  # none is
}


@pytest.fixture(scope="module")
def primes(tmp_path_factory):
    """Rows whose classes are primes large; one pattern of logits per class, some mistaken."""
    logits, labels = [], []
    for j, count in enumerate(CLASS_ROWS):
        rows = np.tile(np.linspace(-0.5, 0.5, 3), (count, 1))
        rows[:, j] += 2.0
        rows[: count // 7, (j + 1) % 3] += 3.0
        logits.append(rows)
        labels.append(np.full(count, j))
    test = np.random.default_rng(0).normal(size=(97, 3))
    rows = {
        "logits": np.concatenate(logits),
        "labels": np.concatenate(labels),
        "subject": np.arange(sum(map(len, labels))) // 2,
    }
    path = tmp_path_factory.mktemp("primes") / "primes.npz"
    np.savez(path, **rows, test_logits=test, test_labels=test.argmax(axis=1))
    np.savez(path.with_name(WITHOUT_TEST), **rows)
    return path


@dataclass(frozen=True)
class Secret:
    """A number that only the server may know; `released`: a run without privacy publishes it."""

    name: str
    value: float
    released: bool = False


@pytest.fixture
def watched(primes, monkeypatch):
    """Run on `primes` and tell what the server alone saw: exact sums, and who was in them."""
    rounds: list[tuple[OpenRound, Any]] = []
    close = FederatedStrategy.close_round

    def spy(self: FederatedStrategy, asked: OpenRound, total: Any) -> Any:
        rounds.append((asked, total.copy()))
        return close(self, asked, total)

    monkeypatch.setattr(FederatedStrategy, "close_round", spy)

    def run(method: str, epsilon: float, federation: str, out: Path, **more: Any) -> list[Secret]:
        rounds.clear()
        options = {"method": method, "epsilon": epsilon, "seed": 2, **FEDERATIONS[federation]}
        options |= more
        if "rows_per_client" in settings_of(method):
            options["set"] = {"rows_per_client": 11}
        data = primes.with_name(WITHOUT_TEST) if evaluates(method) else primes
        try:
            result = simulate(data, out=out, **options, rounds=2)
        except InputError:  # it asks as often as it needs
            result = simulate(data, out=out, **options)
        c = result.config
        shards = deal(datasets.load(data), c.partition, c.clients, c.seed)
        shards = replace(shards, names=numbered(shards.clients))
        secrets = [Secret(f"rows of class {j}", n) for j, n in enumerate(CLASS_ROWS)]
        secrets.append(Secret("clients with rows", int(np.count_nonzero(shards.rows))))
        for asked, total in rounds:
            secrets += secrets_of(asked, total, shards)
        # small counts are everywhere; how many clients are enrolled and bytes sent is public
        public = {shards.clients, *result.communication.values()}
        return [s for s in secrets if tells(s.value) and s.value not in public]

    return run


def tells(value: float) -> bool:
    return abs(value) > 40 or (value != round(value) and abs(value) > 1e-3)


def secrets_of(asked: OpenRound, total: Any, shards: Shards) -> Iterator[Secret]:
    """The sum that the server decodes, the unclipped one, and the counts of the cohort."""
    part, where = shards.take(asked.clients), f"round {asked.round}"
    for i, value in enumerate(asked.request.ring.decode(total)):
        yield Secret(f"{where}: sum {i}", float(value), released=True)
    query = asked.request.query
    for i, value in enumerate(query.sums(part).sum(axis=0)):
        yield Secret(f"{where}: unclipped sum {i}", float(value))
    yield Secret(f"{where}: clients", len(asked.clients))
    yield Secret(f"{where}: clients with rows", int(np.count_nonzero(part.rows)))
    yield Secret(f"{where}: rows", int(part.rows.sum()))
    for j, count in enumerate(np.bincount(part.labels, minlength=3)):
        yield Secret(f"{where}: rows of class {j}", int(count))


def held(secrets: list[Secret], folder: Path) -> set[str]:
    """Names of those secrets that some file of the folder holds, to nine digits."""
    numbers = numbers_in(folder)
    return {s.name for s in secrets if np.abs(numbers - s.value).min() <= 1e-9 * abs(s.value)}


KEPT = (*EACH_KIND, "fedcal", "evaluate", "conformal", "dp-platt", "fedsgd")


@pytest.mark.parametrize(
    ("method", "federation"),
    [
        *((m, "sampled" if m in EACH_KIND[::2] else "everybody") for m in KEPT),
        *(pytest.param(m, "everybody", marks=pytest.mark.slow) for m in {*BUDGETED} - {*KEPT}),
    ],
)
def test_files_of_a_private_run_hold_no_exact_number(watched, method, federation, tmp_path):
    # Without privacy the very same search finds every released sum ...
    secrets = watched(method, math.inf, federation, tmp_path / "open")
    released = {s.name for s in secrets if s.released}
    assert len(released) >= 2
    if STRATEGIES[method].keeps_releases:
        assert held(secrets, tmp_path / "open") >= released
    # ... and with privacy nothing.
    secrets = watched(method, 1.0, federation, tmp_path / "private")
    sums = {s.name for s in secrets if s.released}
    assert sums
    found = held(secrets, tmp_path / "private")
    if method == "fedcal":  # of thousands of noisy values on one grid some equal another's sum
        assert len(found & sums) < len(sums) / 20
        found -= sums
    if STRATEGIES[method].family == "personal":  # what sites do at home is exact, and says so
        found &= sums
    assert found == set()


@pytest.mark.parametrize(
    ("method", "trust", "unit"),
    [
        ("fednewton", "distributed", "user"),
        ("fedbin", "local", "user"),
        ("acct", "distributed", "example"),
    ],
)
def test_nor_where_clients_add_the_noise(watched, method, trust, unit, tmp_path):
    """What the server decodes is noisy, and released; all else stays secret."""
    secrets = watched(method, 1.0, "everybody", tmp_path / "o", trust=trust, unit=unit)
    released = {s.name for s in secrets if s.released}
    assert released
    assert held(secrets, tmp_path / "o") == released


def test_nominal_rows_that_set_no_noise_are_not_in_results(data, tmp_path):
    """Taken from the simulated rows, they tell the exact number of rows, which nothing protects."""
    options = ("--data", str(data), "--clients", "4", "--epsilon", "8")
    search = ("--method", "acct", "--set", "search=posterior", "--unit", "example")
    published: dict[str, bool] = {}
    for name, more in {
        "taken": search,
        "given": (*search, "--set", "rows_per_client=40"),
        "noise": ("--method", "fednewton", "--unit", "user"),
    }.items():
        result = strict((ran(tmp_path / name, *options, *more) / "result.json").read_text("utf-8"))
        published[name] = "rows_per_client" in result["config"]["set"]
        sentences = " ".join([*result["privacy"]["statement"], *result["privacy"]["more"]])
        assert ("omitted from the results" in sentences) is not published[name]
        assert published[name] is bool(re.search(r"rows_per_client = \d", sentences))
    assert published == {"taken": False, "given": True, "noise": True}


QUICK = {"steps": 4, "epochs": 1, "bins_exponent": 3}
"""Settings that mean less work, for methods that have them; they change no path of the code."""


def promises() -> Iterator[Any]:
    """Each method under one trust model by turns, and three under each; units by turns."""
    for i, method in enumerate(BUDGETED):
        for j, trust in enumerate(("central", "distributed", "local")):
            slow = (i + j) % 3 and method not in ("fednewton", "acct", "fedbin")
            marks = [pytest.mark.slow] if slow else []
            yield pytest.param(method, trust, [*UNITS][(i // 3 + j) % len(UNITS)], marks=marks)


@pytest.mark.parametrize(("method", "trust", "unit"), list(promises()))
def test_every_strategy_runs_and_promises_what_its_plan_does(method, trust, unit):
    rows = {**halves(3, 120, 1, 1.0), "subject": np.arange(120) // 3}
    options = {"method": method, "clients": 10, "partition": "iid", "epsilon": 1.0, "seed": 3}
    quick = {key: value for key, value in QUICK.items() if key in settings_of(method)}
    result = simulate(rows, **options, set=quick, trust=trust, unit=unit)
    numbers = [a for a in result.artifact.arrays().values() if a.dtype.kind in "fiu"]
    assert all(np.isfinite(array).all() for array in numbers)
    privacy = result.privacy
    plan = job_of(result.config, deal(datasets.from_arrays(**rows), "iid", 10, 3)).plan
    for key in ("trust", "unit", "adjacency", "epsilon", "delta", "diameter"):
        assert privacy[key] == getattr(plan, key)
    assert (privacy["trust"], privacy["unit"]) == (trust, unit)
    assert privacy["mechanism"] == plan.mechanism.name
    assert privacy["releases"] == plan.rounds == len(result.rounds)
    if plan.noise_std is None:
        assert (trust, privacy["noise_std"]) == ("central", None)
    else:
        written = np.broadcast_to(privacy["noise_std"], len(plan.noise_std))
        assert written.tolist() == [*plan.noise_std]
        assert min(plan.noise_std) > 0
    assert (result.config.secure_aggregation == "masks") is (trust == "distributed")
