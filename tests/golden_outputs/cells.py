"""The cells: command lines and Python functions, by group. Nothing of fedcal is imported here.

A step is a command line of `fedcal` (a string), or `module NAME ...`: the `main` of a module
that is found by `worker.ENTRIES`, or `python NAME ...`: a function of `calls`. All run in a folder
of the cell; `in/` are the files of `inputs`, `out` is what a cell writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Cell = tuple[str, Sequence[str]]
"""Name, steps."""

SMALL = "--data in/plain.npz --clients 12 --partition dirichlet:0.5"
COMMANDS = (
    *("simulate", "compare", "plan", "train", "reproduce", "report", "export", "apply"),
    *("flower-app", "datasets"),
)
MODULES = ("documents", "expected", "demo", "shift-logits", "shift-mnist", "shift-picture")
BENCHMARKS = ("benchmarks", "bench-audit", "bench-luo", "bench-samplers")


def cells(methods: Sequence[str], experiments: Sequence[str], blocks: Sequence[str]) -> list[Cell]:
    """All of them.

    Parameters
    ----------
    methods, experiments, blocks
        names that are there at the commit
    """
    found: list[Cell] = []
    groups = {
        "simulate": simulate(methods),
        "compare": compare(),
        "plan": plan(),
        "reproduce": reproduce(experiments),
        "documents": ((name, [f"python block {name}"]) for name in blocks),
        "train": train(),
        "shift": shift(),
        "files": files(),
        "python": python(),
        "benchmarks": benchmarks(),
        "demo": iter([("demo", ["python demo"])]),
        "errors": errors(),
        "help": helps(),
    }
    for group, named in groups.items():
        found += [(f"{group}/{name}", steps) for name, steps in named]
    if len({name for name, _ in found}) < len(found):
        raise ValueError("two cells have one name")
    return found


def simulate(methods: Sequence[str]) -> Iterator[Cell]:
    yield "default", ["simulate"]
    yield "default-json", ["simulate --json"]
    yield "default-out", ["simulate --out out", "simulate --out out --epsilon 1"]
    yield "quiet", [f"simulate {SMALL} --quiet"]
    for method in methods:
        run = f"simulate {SMALL} --method {method}"
        yield f"{method}-inf", [f"{run} --out out", f"{run} --json"]
        yield f"{method}-1", [f"{run} --epsilon 1 --out out", f"{run} --epsilon 1 --json"]
    for trust in ("secagg", "central", "distributed", "local"):
        epsilon = "inf" if trust == "secagg" else "2"
        run = f"simulate {SMALL} --trust {trust} --epsilon {epsilon}"
        yield f"trust-{trust}", [f"{run} --out out", f"{run} --json"]
        if trust != "secagg":
            yield f"trust-{trust}-acct", [f"{run} --method acct --json"]
    for unit in ("user", "example", "subject"):
        run = f"simulate {SMALL} --epsilon 2 --unit {unit}".replace("plain", "subjects")
        yield f"unit-{unit}", [f"{run} --out out", f"{run} --json"]
        yield f"unit-{unit}-local", [f"{run} --trust local"]
    for mechanism in ("laplace", "gaussian", "discrete-laplace", "discrete-gaussian"):
        trust = "distributed" if mechanism.startswith("discrete") else "central"
        yield (
            f"mechanism-{mechanism}",
            [f"simulate {SMALL} --epsilon 2 --trust {trust} --mechanism {mechanism}"],
        )
    yield (
        "mechanism-exponential",
        [f"simulate {SMALL} --method nllt --epsilon 2 --mechanism exponential --json"],
    )
    yield (
        "mechanism-unary",
        [
            f"simulate {SMALL} --method fedoneshot --epsilon 2 --trust local "
            "--mechanism unary --json"
        ],
    )
    yield "dropout", [f"simulate {SMALL} --dropout 0.3 --sampling-rate 0.5 --rounds 3 --json"]
    yield (
        "quorum",
        [f"simulate {SMALL} --epsilon 2 --trust distributed --quorum 0.5 --dropout 0.2 --seed 4"],
    )
    yield "masks", [f"simulate {SMALL} --secure-aggregation masks --dropout 0.1 --out out"]
    yield "sampling", [f"simulate {SMALL} --epsilon 2 --sampling-rate 0.5 --rounds 6 --out out"]
    charged = f"simulate {SMALL} --epsilon 1 --ledger ledger.db --cap 2.5"
    yield "ledger", [f"{charged} --out out", charged, f"{charged} --json"]
    yield "ledger-delta", [f"{charged} --cap-delta 1e-5", f"{charged} --cap-delta 1e-5"]
    again = "simulate --config out/config.toml"
    yield (
        "config",
        [
            f"simulate {SMALL} --method fedbin --epsilon 3 --set bins_exponent=4 --out out",
            f"{again} --json",
            f"{again} --epsilon inf --out other",
            f"{again} --method acct --trust local",
            "simulate --config in/simulate.toml --json",
        ],
    )
    yield "set", [f"simulate {SMALL} --method fedbbq --set weighting=none --set bins_exponent=3"]
    yield "auto", ["simulate --data in/plain.npz --clients 12 --method auto --epsilon 1 --out out"]
    yield "auto-inf", ["simulate --data in/plain.npz --clients 12 --method auto --json"]
    yield "natural", ["simulate --data game-forecasts --partition natural --out out"]
    yield "natural-file", ["simulate --data in/own-clients.npz --partition natural --epsilon 2"]
    for deal in ("iid", "quantity:0.5", "shards:2"):
        yield f"partition-{deal}", [f"simulate --data in/plain.npz --clients 12 --partition {deal}"]
    for name in ("imdb-binary", "mnist-cnn", "mnist-shift:snow:1", "in/table.csv", "in/probs.npz"):
        title = name.replace("/", "-").replace(":", "-")
        yield f"data-{title}", [f"simulate --data {name} --clients 20 --json"]
    yield "densenet", ["simulate --data densenet-cifar100 --method fedtemp --clients 20"]


def compare() -> Iterator[Cell]:
    run = f"compare {SMALL} --seeds 2"
    four = f"{run} --method none,fednewton,fedbin,acct,fedbbq[weighting=none] --epsilon inf,1"
    yield "out", [f"{four} --jobs 1 --out out", "report out", f"{four} --jobs 1 --out out --resume"]
    yield "json", [f"{four} --jobs 1 --json", f"{four} --jobs 2 --json"]
    yield "quiet", [f"{four} --jobs 1 --quiet"]
    yield (
        "grown",
        [
            f"{run} --method acct --epsilon 1 --jobs 1 --out out",
            f"{run} --method acct,nllt --epsilon 1 --jobs 1 --out out --resume",
        ],
    )
    yield (
        "failing",
        [
            f"{run} --method fednewton,none --epsilon 1,inf --trust distributed,secagg "
            "--dropout 0.6 --jobs 1 --out out",
            "report out",
        ],
    )
    yield (
        "axes",
        [
            "compare --data in/plain.npz,in/subjects.npz --method fednewton,fedtemp --epsilon 2 "
            "--partition iid,dirichlet:0.3 --clients 8,12 --seeds 1 --jobs 1 --out out"
        ],
    )
    yield (
        "rounds",
        [
            f"{run} --method fednewton --rounds 2,4 --sampling-rate 0.5,1 --epsilon 1,4 --jobs 1 "
            "--out out"
        ],
    )
    yield (
        "trusts",
        [
            f"{run} --method fedoneshot,fednewton --trust central,local,distributed --epsilon 2 "
            "--mechanism auto,laplace --delta 1e-5,1e-6 --jobs 1 --out out"
        ],
    )
    units = f"{run} --method fednewton --unit user,example,subject --epsilon 2 --jobs 1 --out out"
    yield "units", [units.replace("plain", "subjects")]
    yield "all", [f"compare {SMALL} --seeds 1 --epsilon inf,1 --jobs 1 --out out"]
    yield "config", [f"compare {SMALL} --config in/compare.toml --jobs 1 --json"]
    yield "set", [f"{run} --method fedbin,fednewton --set bins_exponent=3 --jobs 1"]


def plan() -> Iterator[Cell]:
    few = "plan --clients 50 --rows-per-client 40 --classes 3"
    two = f"{few} --method fednewton,fedbin,acct"
    yield "default", [f"{few} --epsilon 1 --out out"]
    yield "json", [f"{few} --epsilon 4 --sampling-rate 0.5 --json"]
    yield "no-privacy", [f"{two} --json", two]
    yield "out", [f"{two} --epsilon 1 --out out", "simulate --config out/config.toml --json"]
    yield "not-enough", [f"{two} --epsilon 0.05 --out out", f"{two} --epsilon 0.05 --json"]
    yield "distributed", [f"{two} --epsilon 1 --trust distributed --quorum 0.7"]
    yield "local", [f"{two} --epsilon 4 --trust local --unit example --partition iid"]
    yield "sampling", [f"{two} --epsilon 2 --sampling-rate 0.2 --rounds 5 --seed 3"]
    yield "laplace", [f"{two} --epsilon 2 --mechanism laplace"]
    known = "plan --clients 50 --rows-per-client 40 --data"
    yield "data", [f"{known} mnist-cnn --method fednewton,acct --epsilon 1"]
    yield "data-two", [f"{known} mnist-cnn,resnet110-cifar10 --method fednewton --json"]
    yield (
        "slow",
        ["plan --clients 10 --rows-per-client 20 --classes 3 --method fedopvector,fedcal"],
    )
    yield "missing", ["plan --clients 10", "plan --classes 3"]


def reproduce(experiments: Sequence[str]) -> Iterator[Cell]:
    yield "list", ["reproduce", "reproduce --list --json"]
    for name in experiments:
        yield f"shipped-{name}", [f"python shipped {name}"]
    ratio = "reproduce private-temperature --seeds 1 --jobs 1 --out out --data in/three.npz"
    yield "private-temperature", [ratio, f"{ratio} --resume --json"]
    yield "check", ["reproduce fedtemp-bound --seeds 1 --jobs 1 --check"]
    for name in ("table2", "table3", "figure2", "figure3"):
        yield f"maddock-{name}", [f"python one_network maddock-{name} in/three.npz"]
    yield "amplification", ["python quick_rows amplification"]
    yield "binning-pays", ["python quick_rows binning-pays"]
    yield "maddock-table6", ["python quick_rows maddock-table6"]
    yield "maddock-table7", ["python client_seconds"]
    yield "audit", ["python audit_rows 500"]
    for name in ("table1", "table7", "figures"):
        yield f"luo-{name}", [f"python luo_rows luo-{name}"]


def train() -> Iterator[Cell]:
    run = (
        "train --data in/images.npz --clients 6 --partition iid --sampling-rate 0.5 --batch-size 8"
    )
    yield (
        "cnn",
        [
            f"{run} --rounds 3 --evaluate-every 2 --out out",
            "train --out out --resume",
            "simulate --data out/logits.npz --partition natural",
        ],
    )
    yield "json", [f"{run} --rounds 2 --lr 0.1 --seed 3 --json", f"{run} --config in/train.toml"]


def shift() -> Iterator[Cell]:
    images = "--images in/CIFAR-10-C --corruption fog --severity"
    yield (
        "logits",
        [
            "python small_model",
            f"module shift-logits --model model.pt {images} 2 --out fog.npz",
            f"module shift-logits --model model.pt {images} 9 --out fog.npz",
            f"module shift-logits --model in/text.npz {images} 2 --out fog.npz",
        ],
    )
    yield (
        "mnist",
        [
            "module shift-mnist --train in/digits.npz --test in/digits.npz --out shift.npz "
            "--rows 60 --epochs 1"
        ],
    )
    yield "picture", ["module shift-picture --images in/digits.npz --out picture.png"]


def files() -> Iterator[Cell]:
    """What reads or writes the files of earlier runs."""
    for method in ("none", "fednewton", "fedbin", "fedbbq", "fedvector", "fedmatrix"):
        yield f"onnx-{method}", _exported(method, "onnx")
    for method in ("fedopvector", "fedcal", "fednewton-entropy", "dp-histogram", "fednewton"):
        yield f"both-{method}", [*_exported(method, "onnx"), *_exported(method, "pt2")[1:]]
    fit = f"simulate {SMALL} --out out --quiet"
    taken = "apply --calibrator out/calibrator.npz --data"
    yield (
        "apply",
        [
            fit,
            f"{taken} in/plain.npz --out probs.npy",
            f"{taken} in/unlabelled.npz --out probs.npz --json",
            f"{taken} in/table.csv --out probs.csv",
            f"{taken} in/plain.npz --out probs.npz --json",
            f"{taken} in/three.npz --out other.npy",
            f"{taken} in/probs.npz --out other.npy",
            f"{taken} in/plain.npz --out other.txt",
        ],
    )
    yield "report", [fit, "report out", "report out --json", "report in"]
    yield "flower-app", ["flower-app app", "flower-app app", "flower-app other --json"]
    yield "datasets", ["datasets", "datasets --json", "datasets --quiet"]


def _exported(method: str, suffix: str) -> list[str]:
    return [
        f"simulate {SMALL} --method {method} --out out --quiet",
        f"export --calibrator out/calibrator.npz --out model.{suffix}",
        f"python run_{suffix} model.{suffix}",
    ]


def python() -> Iterator[Cell]:
    for name in ("simulate", "compare", "plan", "federated", "calibrated", "refusals"):
        yield name, [f"python api_{name}"]


def benchmarks() -> Iterator[Cell]:
    for name in BENCHMARKS:
        yield f"{name}-help", [f"module {name} --help"]
    yield "audit", ["python audit_table 500"]
    yield "unknown", ["module benchmarks --only nothing"]


def helps() -> Iterator[Cell]:
    yield "fedcal", ["--help", "--version", ""]
    yield "process", ["python version_of_process"]
    for command in COMMANDS:
        yield command, [f"{command} --help"]
    for name in MODULES:
        if name != "documents":  # takes no options: it would write
            yield name, [f"module {name} --help"]


WRONG = {
    "no-command": "recalibrate",
    "option": "simulate --colour red",
    "missing-value": "simulate --clients",
    "not-a-number": "simulate --clients many",
    "later": "evaluate --data x",
    "site": "site",
    "resume": "simulate --resume",
    "method": "simulate --method fedmagic",
    "data": "simulate --data nothing-here",
    "data-missing": "simulate --data in/missing.npz",
    "data-folder": "simulate --data in",
    "variant": "simulate --data mnist-shift:rain:5",
    "nan": "simulate --data in/nan.npz",
    "probs-as-logits": "simulate --data in/probs-as-logits.npz --clients 5",
    "logits-as-probs": "simulate --data in/logits-as-probs.npz --clients 5",
    "corrupt": "simulate --data in/corrupt.npz",
    "text": "simulate --data in/text.npz",
    "labels-far": "simulate --data in/far-labels.npz",
    "labels-few": "simulate --data in/few-labels.npz",
    "labels-float": "simulate --data in/float-labels.npz",
    "labels-none": "simulate --data in/no-labels.npz",
    "unlabelled": "simulate --data in/unlabelled.npz",
    "empty": "simulate --data in/empty.npz",
    "epsilon-0": "simulate --epsilon 0",
    "epsilon-negative": "simulate --epsilon -1",
    "epsilon-nan": "simulate --epsilon nan",
    "epsilon-pooled": "simulate --method pooled-bbq --epsilon 1",
    "delta": "simulate --epsilon 1 --delta 1",
    "secagg-finite": "simulate --epsilon 1 --trust secagg",
    "local-inf": "simulate --trust local",
    "trust": "simulate --trust everybody",
    "unit": "simulate --epsilon 1 --unit town",
    "no-subjects": f"simulate {SMALL} --epsilon 1 --unit subject",
    "mechanism": "simulate --epsilon 1 --mechanism cauchy",
    "mechanism-inf": "simulate --mechanism laplace",
    "mechanism-trust": "simulate --epsilon 1 --trust distributed --mechanism laplace",
    "quorum": "simulate --epsilon 1 --quorum 0.5",
    "clients-0": "simulate --clients 0",
    "clients-many": "simulate --clients 20000000",
    "rounds-0": "simulate --rounds 0",
    "sampling-0": "simulate --sampling-rate 0",
    "dropout-1": "simulate --dropout 1",
    "dropout-lost": f"simulate {SMALL} --epsilon 1 --trust distributed --dropout 0.6",
    "seed": "simulate --seed -1",
    "engine": "simulate --engine cloud",
    "engine-later": "simulate --engine grpc",
    "masks": "simulate --secure-aggregation hats",
    "noise-source": "simulate --noise-source dice",
    "partition": "simulate --partition dirichlet:0",
    "partition-word": "simulate --partition alphabetical",
    "partition-natural": "simulate --data in/plain.npz --partition natural",
    "set-word": "simulate --set colour",
    "set-key": "simulate --set colour=red",
    "set-value": "simulate --method fedbin --set bins_exponent=99",
    "set-idle": "simulate --method fedbin --set negatives=clip",
    "config": "simulate --config in/unknown.toml",
    "config-broken": "simulate --config in/broken.toml",
    "config-missing": "simulate --config in/missing.toml",
    "cap": "simulate --epsilon 1 --cap 2",
    "ledger-inf": "simulate --ledger ledger.db --cap 2",
    "ledger-text": "simulate --epsilon 1 --ledger in/text.npz --cap 2",
    "ledger-spent": f"simulate {SMALL} --epsilon 3 --ledger ledger.db --cap 2",
    "out-file": f"simulate {SMALL} --out in/plain.npz",
    "out-below-file": f"simulate {SMALL} --out in/plain.npz/out",
    "out-proc": f"simulate {SMALL} --out /proc/nothing",
    "compare-method": "compare --method fedmagic",
    "compare-empty": "compare --method fedbin,,acct",
    "compare-twice": "compare --method acct,acct",
    "compare-epsilon": "compare --epsilon one",
    "compare-nothing": "compare --method none --epsilon 1 --trust local",
    "compare-resume": "compare --resume",
    "compare-resume-nothing": f"compare {SMALL} --out empty --resume",
    "compare-ledger": "compare --ledger x.db --cap 2",
    "compare-seeds": "compare --seeds 0",
    "compare-jobs": "compare --jobs 0",
    "compare-variant": "compare --method fedbbq[weighting=odd]",
    "compare-config": "compare --config in/unknown.toml",
    "plan-nothing": "plan",
    "plan-data": "plan --clients 10 --rows-per-client 5 --data in/plain.npz",
    "plan-method": "plan --clients 10 --rows-per-client 5 --classes 3 --method fedmagic",
    "plan-classes": "plan --clients 10 --rows-per-client 5 --classes 1",
    "plan-data-classes": "plan --clients 9 --rows-per-client 5 --classes 3 --data mnist-cnn",
    "plan-out": "plan --clients 9 --rows-per-client 5 --classes 3 --out in/plain.npz",
    "reproduce-name": "reproduce maddock-table99",
    "reproduce-list": "reproduce maddock-table2 --list",
    "reproduce-no-name": "reproduce --seeds 2",
    "reproduce-seeds": "reproduce luo-table1 --seeds 2",
    "reproduce-data": "reproduce amplification --data in/plain.npz",
    "reproduce-resume": "reproduce maddock-table2 --resume",
    "reproduce-empty-data": "reproduce maddock-table2 --data ,",
    "train-nothing": "train",
    "train-data": "train --data in/plain.npz",
    "train-model": "train --data in/images.npz --model vgg",
    "train-resume": "train --resume --out empty",
    "train-lr": "train --data in/images.npz --lr 0",
    "report-nothing": "report missing",
    "report-no-folder": "report",
    "export-suffix": "export --calibrator in/plain.npz --out model.bin",
    "export-no-calibrator": "export --calibrator in/plain.npz --out model.onnx",
    "export-missing": "export --calibrator missing.npz --out model.onnx",
    "apply-corrupt": "apply --calibrator in/corrupt.npz --data in/plain.npz --out probs.npy",
    "apply-nothing": "apply",
    "flower-app-file": "flower-app in/plain.npz",
}
"""Name -> a command line that is refused."""


def errors() -> Iterator[Cell]:
    for name, line in WRONG.items():
        yield name, [line]
    yield "json-too", ["simulate --method fedmagic --json", "compare --seeds 0 --quiet"]
