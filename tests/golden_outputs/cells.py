"""The cells: command lines and Python functions, by group. Nothing of fedcal is imported here.

A step is a command line of `fedcal` (a string), or `module NAME ...`: the `main` of a module
that is found by `worker.ENTRIES`, or `python NAME ...`: a function of `calls`. All run in a folder
of the cell; `in/` are the files of `inputs`, `out` is what a cell writes.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import product

Cell = tuple[str, Sequence[str]]

SMALL = "--data in/plain.npz --clients 12 --partition dirichlet:0.5"
COMMANDS = (
    *("simulate", "compare", "plan", "train", "reproduce", "report", "export", "apply"),
    *("flower-app", "datasets"),
)
MODULES = ("expected", "demo", "benchmarks", "shift-mnist", "shift-picture")


def cells(methods: Sequence[str], experiments: Sequence[str], blocks: Sequence[str]) -> list[Cell]:
    """All of them, of the methods, experiments and blocks of documents that the commit has."""
    groups = {
        "simulate": simulate(methods),
        "bits": bits(methods),
        "compare": compare(),
        "plan": plan(),
        "reproduce": reproduce(experiments),
        "documents": ((name, [f"python block {name}"]) for name in blocks),
        "train": train(),
        "files": files(),
        "python": ((n, [f"python api_{n}"]) for n in ("simulate", "compare", "plan", "federated")),
        "help": helps(),
    }
    found = [(f"{group}/{name}", steps) for group, named in groups.items() for name, steps in named]
    if len({name for name, _ in found}) < len(found):
        raise ValueError("two cells have one name")
    return found


def named(start: str, *lines: str) -> Iterator[Cell]:
    """A cell for each line, with the name that its words make."""
    for line in lines:
        yield re.sub(r"\W+", "-", line).strip("-") or "nothing", [f"{start} {line}".strip()]


def simulate(methods: Sequence[str]) -> Iterator[Cell]:
    yield "default", ["simulate", "simulate --json"]
    yield "default-out", ["simulate --out out", "simulate --out out --epsilon 1"]
    for method in methods:
        for epsilon in ("inf", "1"):
            run = f"simulate {SMALL} --method {method} --epsilon {epsilon}"
            yield f"{method}-{epsilon}", [f"{run} --out out", f"{run} --json"]
    subjects = SMALL.replace("plain", "subjects")
    for unit in ("user", "example", "subject"):
        run = f"simulate {subjects} --epsilon 2 --unit {unit}"
        yield f"unit-{unit}", [f"{run} --out out", f"{run} --json", f"{run} --trust local"]
    yield from named(
        f"simulate {SMALL}",
        *("--quiet", "--trust central --epsilon 2 --out out", "--trust secagg --out out"),
        *("--trust local --epsilon 2 --json", "--trust distributed --epsilon 2 --out out"),
        *("--epsilon 2 --mechanism laplace", "--epsilon 2 --mechanism gaussian"),
        "--epsilon 2 --trust distributed --mechanism discrete-laplace",
        "--epsilon 2 --trust distributed --quorum 0.5 --dropout 0.2 --seed 4",
        "--method nllt --epsilon 2 --mechanism exponential --json",
        "--method fedoneshot --epsilon 2 --trust local --mechanism unary --json",
        "--dropout 0.3 --sampling-rate 0.5 --rounds 3 --json",
        "--secure-aggregation masks --dropout 0.1 --out out",
        "--epsilon 2 --sampling-rate 0.5 --rounds 6 --out out",
        "--method fedbbq --set weighting=none --set bins_exponent=3",
    )
    yield from named(
        "simulate --clients 12 --data",
        *("in/plain.npz --method auto --epsilon 1 --out out", "in/plain.npz --method auto --json"),
        *("in/plain.npz --partition iid", "in/plain.npz --partition quantity:0.5"),
        *("in/plain.npz --partition shards:2", "imdb-binary --json", "mnist-cnn --json"),
        *("mnist-shift:snow:1 --json", "in/table.csv --json", "in/probs.npz --json"),
        "densenet-cifar100 --method fedtemp",
    )
    yield "natural", ["simulate --data game-forecasts --partition natural --out out"]
    yield "natural-file", ["simulate --data in/own-clients.npz --partition natural --epsilon 2"]
    charged = f"simulate {SMALL} --epsilon 1 --ledger ledger.db --cap 2.5"
    yield "ledger", [f"{charged} --out out", charged, f"{charged} --json"]
    yield "ledger-delta", [f"{charged} --cap-delta 1e-5", f"{charged} --cap-delta 1e-5"]
    again = "simulate --config out/config.toml"
    first = f"simulate {SMALL} --method fedbin --epsilon 3 --set bins_exponent=4 --out out"
    more = [f"{again} --epsilon inf --out other", f"{again} --method acct --trust local"]
    yield "config", [first, f"{again} --json", *more, "simulate --config in/simulate.toml --json"]


def bits(methods: Sequence[str]) -> Iterator[Cell]:
    """Each method by each mechanism, trust model and unit; what is refused says so."""
    mechanisms = ("laplace", "gaussian", "discrete-laplace", "discrete-gaussian")
    run = f"simulate {SMALL} --quiet --epsilon 2".replace("plain", "subjects")
    for method, trust in product(methods, ("central", "distributed", "local")):
        promise = f"{run} --method {method} --trust {trust}"
        lines = [f"--unit {u}" for u in ("user", "example", "subject")]
        lines += [f"--mechanism {m}" for m in (*mechanisms, "exponential", "unary")]
        lines += ["--sampling-rate 0.5 --dropout 0.1 --quorum 0.5 --rounds 2"]
        yield f"{method}-{trust}", [f"{promise} {x} --out {k}" for k, x in enumerate(lines)]


def compare() -> Iterator[Cell]:
    run = f"compare {SMALL} --seeds 2 --jobs 1"
    four = f"{run} --method none,fednewton,fedbin,acct,fedbbq[weighting=none] --epsilon inf,1"
    yield "out", [f"{four} --out out", "report out", f"{four} --out out --resume"]
    yield "json", [f"{four} --json", f"{four} --json --jobs 2", f"{four} --quiet"]
    grown = f"{run} --epsilon 1 --out out --method acct"
    yield "grown", [grown, f"{grown},nllt --resume"]
    lost = "--epsilon 1,inf --trust distributed,secagg --dropout 0.6"
    yield "failing", [f"{run} --method fednewton,none {lost} --out out", "report out"]
    yield "units", [f"{run} --unit user,example,subject --epsilon 2".replace("plain", "subjects")]
    yield from named(
        f"{run} --out out --method",
        "fedtemp --data in/plain.npz,in/subjects.npz --epsilon 2 --partition iid,shards:2",
        "fednewton --rounds 2,4 --sampling-rate 0.5,1 --epsilon 1,4",
        "fedoneshot,fednewton --trust central,local,distributed --epsilon 2 --delta 1e-5,1e-6",
        *("all --epsilon inf,1 --seeds 1", "fedbin,fednewton --set bins_exponent=3"),
    )
    yield "config", [f"compare {SMALL} --config in/compare.toml --jobs 1 --json"]


def plan() -> Iterator[Cell]:
    few = "plan --clients 50 --rows-per-client 40"
    two = f"{few} --classes 3 --method fednewton,fedbin,acct"
    yield "default", [f"{few} --classes 3 --epsilon 1 --out out"]
    yield "all-json", [f"{few} --classes 3 --epsilon 4 --sampling-rate 0.5 --json"]
    yield "out", [f"{two} --epsilon 1 --out out", "simulate --config out/config.toml --json"]
    yield from named(
        two,
        *("", "--json", "--epsilon 0.05 --out out", "--epsilon 2 --mechanism laplace"),
        "--epsilon 1 --trust distributed --quorum 0.7",
        "--epsilon 4 --trust local --unit example --partition iid",
        "--epsilon 2 --sampling-rate 0.2 --rounds 5 --seed 3",
    )
    yield "data", [f"{few} --data mnist-cnn --method fednewton,acct --epsilon 1"]
    yield "data-two", [f"{few} --data mnist-cnn,resnet110-cifar10 --method fednewton --json"]
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
    for name in ("amplification", "binning-pays", "maddock-table6"):
        yield name, [f"python quick_rows {name}"]
    yield "audit", ["python audit_rows 500"]
    for name in ("table1", "table7", "figures"):
        yield f"luo-{name}", [f"python luo_rows luo-{name}"]


def train() -> Iterator[Cell]:
    run = "train --data in/images.npz --clients 6 --partition iid --sampling-rate 0.5"
    run += " --batch-size 8"
    first = f"{run} --rounds 3 --evaluate-every 2 --out out"
    fitted = "simulate --data out/logits.npz --partition natural"
    yield "cnn", [first, "train --out out --resume", fitted]
    yield "json", [f"{run} --rounds 2 --lr 0.1 --seed 3 --json", f"{run} --config in/train.toml"]


def files() -> Iterator[Cell]:
    """What reads or writes the files of earlier runs."""
    fit = f"simulate {SMALL} --out out --quiet"
    for method in ("none", "fednewton", "fedbin", "fedbbq", "fedvector", "fedopvector", "fedcal"):
        export = "export --calibrator out/calibrator.npz --out model.onnx"
        yield f"export-{method}", [f"{fit} --method {method}", export, "python run_onnx model.onnx"]
    taken = (
        *("plain.npz --out probs.npy", "unlabelled.npz --out probs.npz --json"),
        *("table.csv --out probs.csv", "plain.npz --out probs.npz --json"),
        *("three.npz --out other.npy", "probs.npz --out other.npy", "plain.npz --out other.txt"),
    )
    yield "apply", [fit, *(f"apply --calibrator out/calibrator.npz --data in/{t}" for t in taken)]
    yield "report", [fit, "report out", "report out --json", "report in"]
    yield "flower-app", ["flower-app app", "flower-app app", "flower-app other --json"]
    yield "datasets", ["datasets", "datasets --json", "datasets --quiet"]


def helps() -> Iterator[Cell]:
    yield "fedcal", ["--help", "--version", ""]
    for command in COMMANDS:
        yield command, [f"{command} --help"]
    for name in MODULES:
        yield name, [f"module {name} --help"]
