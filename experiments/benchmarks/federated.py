"""Rounds of many clients, an evaluation and an epoch of training, beside our peers'."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.benchmarks.in_process import run_in_process
from experiments.benchmarks.pooled import DATA, synthetic
from experiments.benchmarks.timing import Case, Contestant, Inside, checksum, named, peers_of
from fedcal import datasets, partition
from fedcal.calibrators import BBQ, HistogramBinning
from fedcal.core.numerics import Integers
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.privacy.noise_plan import Federation
from fedcal.run.engines.inline import run_inline
from fedcal.run.engines.ray import run_flower
from fedcal.strategies.methods.evaluate import FedEvaluate
from fedcal.strategies.methods.histograms import FedBin
from fedcal.strategies.methods.training import FedSGD
from fedcal.strategies.server.job import Job
from fedcal.training.networks import network_named, register_network, text_of
from fedcal.units import Example

ROUNDS = 12
ENGINES = {
    "fedcal inline": run_inline,
    "Flower's loop, in-process grid": run_in_process,
    "Flower's loop, Ray": None,
}


def _released(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    values = np.concatenate([np.asarray(r["values"], np.float64).ravel() for r in records])
    return {"releases": len(records), "released crc32": checksum(values)}


def engine_round(clients: int, rows: int, quick: bool) -> Case:
    """Time a later round of a run in each engine, without the start of Ray and the first round.

    The released values of all rounds are compared bit for bit; pfl's round has noise of its own.
    """
    clients, rounds = (20, 3) if quick else (clients, ROUNDS)
    data, n = datasets.load(DATA), clients * rows
    owner = partition.iid(data.labels[:n], clients, np.random.default_rng(0))
    shards = rows_by_owner(data.logits[:n], data.labels[:n], owner, clients)
    arrays = {"logits": shards.logits, "labels": shards.labels, "owner": shards.owner}
    contestants = [
        Contestant(name, partial(_later, engine, shards, rounds), _released)
        for name, engine in ENGINES.items()
    ]
    pfl = peers_of("round", lambda total: {}, arrays)
    size = f"{clients} clients x {rows} rows x {shards.classes} classes"
    return Case(f"a later histogram round, {size}", None, [*contestants, *pfl])


def _later(engine: Any, shards: Shards, rounds: int) -> Callable[[], Inside]:
    fresh = Shards(shards.logits, shards.labels, shards.offsets)  # nothing derived yet
    job = Job("fedbin", Federation(fresh.clients, fresh.classes, rounds=rounds, epsilon=1.0))
    drive: Any = partial(run_flower, job, fresh)
    if engine is None:
        if find_spec("ray") is None:
            raise ImportError("ray is not installed: the extra fedcal[simulation] has it")
    else:
        drive = partial(job.run, partial(engine, shards=fresh))
    ended: list[float] = []

    def run() -> Inside:
        outcome = drive(progress=lambda done, planned: ended.append(time.perf_counter()))
        return Inside((ended[-1] - ended[0]) / (rounds - 1), outcome.records)

    return run


def population(quick: bool) -> Case:
    """Time rounds over many clients."""
    clients, rows, rounds = (200, 10, 2) if quick else (10_000, 10, ROUNDS)
    logits, labels = synthetic(clients * rows, 10)
    owner = np.random.default_rng(0).integers(0, clients, len(labels))
    federation = Federation(clients, 10, rounds=rounds, epsilon=1.0)

    def prepare() -> Callable[[], object]:
        shards = rows_by_owner(logits, labels, owner, clients)  # nothing derived yet
        return partial(run_inline, FedBin(federation, secure_aggregation="none"), shards)

    def values(calibrator: HistogramBinning | BBQ) -> dict[str, float]:
        return {"table crc32": checksum(calibrator.table)}

    title = f"{clients:,} clients x {rounds} histogram rounds, {clients * rows:,} rows"
    return Case(title, 5.0, [Contestant("fedcal inline", prepare, values)])


# -- evaluation ---------------------------------------------------------------------------------


def evaluated(shards: Shards) -> ScoreRelease:
    """One release with epsilon 1 for each row; all metrics with their intervals."""
    federation = Federation(shards.clients, 2, epsilon=1.0, unit=Example.name)
    method = FedEvaluate(federation, secure_aggregation="none")
    fresh = Shards(shards.logits, shards.labels, shards.offsets)  # nothing derived yet
    run_inline(method, fresh)
    release = method.result()
    release.results()
    return release


def evaluation(quick: bool) -> Case:
    """All metrics of many clients' rows in process, and the peers' AUC of the pooled rows.

    Scores are calibrated, most of them near 0 and 1, and dealt at random.
    """
    clients, rows = (200, 50) if quick else (10_000, 100)
    rng, n = np.random.default_rng(0), clients * rows
    score = np.clip(rng.beta(0.5, 0.5, n), 1e-9, 1 - 1e-9)
    labels = (rng.random(n) < score).astype(np.int64)
    logits = np.stack([np.log1p(-score), np.log(score)], axis=1)
    shards = rows_by_owner(logits, labels, rng.integers(0, clients, n), clients)

    def auc(release: ScoreRelease) -> dict[str, float]:
        return {"AUC": release.found.metrics["model"]["roc_auc"].value}

    return Case(
        f"evaluation of {n:,} rows over {clients:,} clients",
        2.0,
        [
            Contestant("fedcal, all metrics, epsilon 1", lambda: lambda: evaluated(shards), auc),
            *peers_of("ROC AUC", named("AUC"), {"score": score, "labels": labels}),
        ],
    )


# -- training: an epoch, on one thread; what a step costs does not depend on rows -----------------

SHAPES, CLASSES = {"cnn": (28, 28), "softmax": (512,), "mlp": (512,)}, 10
BATCH, CLIP, LR, EPSILON, DELTA = 256, 1.0, 0.5, 8.0, 1e-5


def _network(model: str) -> str:
    """Name a model; "cnn" is the one that made the shipped logits of MNIST."""
    from experiments.shipped.mnist_cnn import MnistCNN

    return register_network(MnistCNN if model == "cnn" else model)


def our_method(model: str, rows: int) -> FedSGD:
    """Return an epoch of SGD in one place."""
    return FedSGD(
        Federation(clients=1, classes=CLASSES, epsilon=EPSILON, delta=DELTA, unit=Example.name),
        network=_network(model),
        shape=text_of(SHAPES[model]),
        rows_per_client=float(rows),
        batch=float(BATCH),
        epochs=1.0,
        lr=LR,
        clip=CLIP,
    )


def our_epoch(model: str, x: NDArray[Any], y: Integers) -> Callable[[], int]:
    """Plan, sampling, gradients, ring, noise, ledger and steps."""
    n = len(y)
    shards = rows_by_owner(np.zeros((n, CLASSES)), y, np.zeros(n, np.int64), 1, inputs=x)
    method = our_method(model, n)

    def run() -> int:
        run_inline(method, shards)
        return method.released

    return run


def opacus_epoch(name: str, x: NDArray[Any], y: Integers, multiplier: float) -> Callable[[], int]:
    """Run Opacus's engine with Poisson batches and float noise of our std, without accounting."""
    import torch
    from opacus import PrivacyEngine

    torch.set_num_threads(1)
    model = network_named(_network(name)).module(SHAPES[name], CLASSES, 0).train()
    data = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about hooks and random generators
        private, optimiser, batches = PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=LR),
            data_loader=torch.utils.data.DataLoader(data, batch_size=BATCH),
            noise_multiplier=multiplier,
            max_grad_norm=CLIP,
        )

    def run() -> int:
        steps = 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for some, labels in batches:
                optimiser.zero_grad()
                loss: Any = torch.nn.functional.cross_entropy(private(some), labels)
                loss.backward()
                optimiser.step()
                steps += 1
        return steps

    return run


def epoch(model: str, quick: bool) -> Case:
    """All that a training does in an epoch."""
    n, rng = (512 if quick else 5120), np.random.default_rng(0)
    x, y = rng.integers(0, 256, (n, *SHAPES[model]), np.uint8), rng.integers(0, CLASSES, n)
    x = x if model == "cnn" else x.astype(np.float32) / 2**12  # about unit size
    theirs = partial(opacus_epoch, model, x, y, our_method(model, n).plan.multiplier)
    ours = partial(our_epoch, model, x, y)
    title = f"an epoch of {n:,} rows, batch {BATCH}, {model}, epsilon {EPSILON:g}"
    both = {"fedcal, seeded: rounded normal noise": ours, "Opacus, float noise": theirs}
    return Case(title, None, [Contestant(*one, named("steps")) for one in both.items()])


CASES: dict[str, Callable[[bool], Case]] = {
    "engine-round-100": partial(engine_round, 100, 50),
    "engine-round-500": partial(engine_round, 500, 10),
    "population": population,
    "evaluation": evaluation,
    **{f"dp-epoch-{model}": partial(epoch, model) for model in SHAPES},
}
