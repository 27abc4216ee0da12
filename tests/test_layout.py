"""Import contracts: allowed imports between packages, late imports, and forbidden text."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import fedcal

ROOT = Path(fedcal.__file__).resolve().parents[1]
FOLDERS = ("fedcal", "clients", "strategies", "experiments")
FILES = [p for folder in FOLDERS for p in sorted((ROOT / folder).rglob("*.py"))]
SOURCES = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in FILES}
ORDER = (  # a package imports those before it; `fedcal/__init__` and `fedcal/__main__` all
    *("core", "storage", "secure_aggregation", "accounting", "units", "mechanisms", "metrics"),
    *("datasets", "partition", "trust", "privacy", "calibrators", "evaluation", "conformal"),
    *("personal", "training", "export", "clients", "strategies", "results", "run", "sites", "cli"),
)
FLOWER = r"flwr(?!\.(app|clientapp|serverapp)\b)\.\w+"  # what Flower does not promise
CONTRACTS = [  # files, what they never import (in functions neither), files that may
    *(
        (rf"(fedcal/)?{p}[/.]", rf"fedcal\.({'|'.join(ORDER[k:])})", "$^")
        for k, p in enumerate(ORDER[:-1], 1)
    ),
    (r"clients/", r"fedcal\.(evaluation|conformal|personal)", "$^"),
    (r"strategies/", r"fedcal\.clients(?!\.questions)", "$^"),
    (r"fedcal/(?!results|run|sites|cli)", "flwr", r"__\w+__|flower_internals"),
    (r"clients/", "flwr", r"_app|replies|process/runtime"),
    (r"strategies/", "flwr", r"server"),
    (r"(?!experiments/)", FLOWER, "flower_internals"),
    (r"(?!experiments/)", "experiments", "$^"),
    ("", r"\.+|clients|strategies|pickle|marshal|shelve|joblib|dill|cloudpickle|random", "$^"),
]
NEVER = r"allow_pickle=(?!False)|default_rng\(\)"
BREAK_THEM = """fedcal/core/x.py def f(): import flwr.app
fedcal/core/x.py from fedcal import clients
fedcal/results/x.py from fedcal.run import config
clients/x.py from ..strategies import base
clients/x.py from fedcal.evaluation import drift
strategies/x.py from fedcal.clients import answers
strategies/x.py app = 'fedcal.cli.main:main'
strategies/server/x.py from flwr.server import client_manager
experiments/x.py np.load(f, allow_pickle=True)
fedcal/cli/x.py from experiments import shift"""
HEAVY = "torch opacus ray pyarrow sklearn torchmetrics onnx onnxruntime pandas matplotlib jinja2"
KNOWN = """
from fedcal.calibrators.base import kinds
known = kinds()
from fedcal.strategies.server.outcome import ARTIFACTS
known |= ARTIFACTS"""
AGAIN = "assert kinds() | ARTIFACTS == known"  # who reads a file knows each class that writes one
WITH_THEM = r"estimator|torch_|row_gradients|figures|experiments|__main__"


def broken(path: str, source: str) -> list[str]:
    """Return what a file imports (or names as an entry point) or writes against the contracts."""
    found = re.findall(r"['\"](fedcal(?:\.\w+)+):\w+['\"]", source)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{'.' * node.level}{node.module}.{alias.name}" for alias in node.names]
    rules = [r for files, r, but in CONTRACTS if re.match(files, path) and not re.search(but, path)]
    wrong = [name for name in found if any(re.match(rf"({rule})(\b|$)", name) for rule in rules)]
    return wrong + re.findall(NEVER, source)


def test_every_module_keeps_the_contracts_and_what_breaks_one_is_seen():
    assert {path: wrong for path, text in SOURCES.items() if (wrong := broken(path, text))} == {}
    assert [line for line in BREAK_THEM.splitlines() if not broken(*line.split(" ", 1))] == []


def printed(code: str, folder: Path) -> list[str]:
    return subprocess.check_output([sys.executable, "-c", code], cwd=folder, text=True).split()


def test_a_clone_is_found_from_anywhere_and_imports_heavy_packages_late(tmp_path):
    upper = ("clients", "strategies")
    code = "; ".join(f"import fedcal.{n}; print(fedcal.{n}.__file__)" for n in upper)
    (tmp_path / "clients").mkdir()
    (tmp_path / "clients/__init__.py").write_text("raise SystemExit('a foreign package')")
    found = [Path(file).resolve() for file in printed(code, tmp_path)]
    assert found == [ROOT / n / "__init__.py" for n in upper]
    light = [p for p in SOURCES if not re.search(WITH_THEM, p)]
    names = [re.sub(r"(/__init__)?\.py$", "", p).replace("/", ".") for p in light]
    full = [f"fedcal.{n}".replace("fedcal.fedcal", "fedcal") for n in names]
    every = f"import sys\n{KNOWN}\nfor n in {full}: __import__(n)\nprint(*sys.modules)\n{AGAIN}"
    assert set(printed(every, tmp_path)) & set(HEAVY.split()) == set()
    first = "import sys; sys.modules['fcntl'] = None; import fedcal; print(*sys.modules)"
    assert set(printed(first, tmp_path)) & {"numpy", "flwr", "fedcal.run"} == set()
    home = "run(['check', 'imdb-binary', '--out', 'home']); print(*sys.modules)"
    seen = printed(f"import sys; from fedcal.cli.main import exit_code_of as run; {home}", tmp_path)
    assert {*seen} & {"flwr", "grpc", "ray", "matplotlib"} == {"matplotlib"}
