"""The house rules that hold for every module: who imports whom, what is never written."""

import ast
import importlib
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import fedcal

ROOT = Path(fedcal.__file__).resolve().parents[1]
TESTS = Path(__file__).parent
ROOMS = ("clients", "strategies", "experiments")
"""Folders beside `fedcal/`, importable as `fedcal.clients` and so on."""
PACKAGES = ("fedcal", *ROOMS)
MODULES = sorted(
    {path.resolve() for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
)
NAMES = [str(path.relative_to(ROOT)) for path in MODULES]

HEAVY = {
    *("torch", "opacus", "ray", "pyarrow", "sklearn", "torchmetrics", "onnx", "onnxruntime"),
    *("datasets", "flwr_datasets", "pandas", "jinja2", "matplotlib"),
}
ESTIMATOR = ("__init__", "federated", "calibrated_model")
TORCH = ("export/torch_modules", "training/local_sgd", "training/torch_models")
OPTIONAL = {
    **{f"experiments/runs/estimator/{name}.py": {"sklearn"} for name in ESTIMATOR},
    **{f"fedcal/{name}.py": {"torch"} for name in TORCH},
    "fedcal/export/onnx_graph.py": {"onnx"},
    "fedcal/training/row_gradients.py": {"opacus", "torch"},
}
"""Modules that are imported only by who wants just that package."""
PICKLES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
KEYED = {"Generator", "BitGenerator", "Philox", "PCG64", "SeedSequence", "default_rng"}

MAY_NOT = {
    "fedcal": {"flwr", "fedcal.clients", "fedcal.strategies", "fedcal.experiments"},
    "clients": {"flwr", "fedcal.strategies", "fedcal.experiments"},
    "strategies": {"flwr", "fedcal.clients", "fedcal.experiments"},
    "experiments": set[str](),
}
MAY = {
    "fedcal/__init__.py": {"fedcal.clients", "fedcal.strategies", "fedcal.experiments"},
    "fedcal/__main__.py": {"fedcal.experiments"},
    "fedcal/core/flower_internals.py": {"flwr"},
    **{
        path: {"flwr"}
        for path in ("clients/any_app.py", "clients/client_app.py", "strategies/server_app.py")
    },
    **{f"clients/site/process/{n}.py": {"flwr"} for n in ("flower_guard", "site_app")},
    **{
        f"strategies/server/{n}.py": {"flwr"} for n in ("exchange", "readiness", "transport", "who")
    },
}
"""The only modules that may name what their folder may not."""


def imports(tree: ast.AST, package: str) -> set[str]:
    """Top-level names of everything that is imported anywhere below `tree`."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(package if node.level else str(node.module).partition(".")[0])
    return found


def at_import(tree: ast.Module) -> Iterator[ast.stmt]:
    """Statements that run when the module is imported; type checkers' imports do not."""
    waiting: list[ast.stmt] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            waiting += node.orelse
            continue
        yield node
        for block in ("body", "orelse", "finalbody"):
            waiting += getattr(node, block, [])
        for handler in getattr(node, "handlers", []):
            waiting += handler.body


def imports_at_import(tree: ast.Module, package: str) -> set[str]:
    plain = [n for n in at_import(tree) if isinstance(n, (ast.Import, ast.ImportFrom))]
    return set().union(*(imports(node, package) for node in plain))


def room_of(name: str) -> str:
    """What an import is of: another project, or the second level of ours (`fedcal.clients`)."""
    top, _, rest = name.partition(".")
    second = rest.partition(".")[0]
    return f"fedcal.{second}" if top == "fedcal" and second in ROOMS else top


DOTTED = r"fedcal(\.\w+)+(:\w+)?"


def rooms_imported(tree: ast.AST, package: str) -> set[str]:
    """`room_of` everything that is imported, by name or by text (`import_module`, entry points)."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {room_of(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level:
            found.add("relative")  # nobody writes these: they would hide the room
        elif isinstance(node, ast.ImportFrom):
            found |= {room_of(f"{node.module}.{alias.name}") for alias in node.names}
        elif isinstance(node, ast.Constant) and re.fullmatch(DOTTED, str(node.value)):
            found.add(room_of(str(node.value)))
    return found


def forbidden_imports(tree: ast.Module, path: Path) -> set[str]:
    banned = {"relative", *ROOMS, *MAY_NOT[path.parts[0]]} - MAY.get(str(path), set())
    return rooms_imported(tree, path.parts[0]) & banned


def module_of(path: Path) -> str:
    """`fedcal.clients.answers` for `clients/answers.py`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "fedcal" else ("fedcal", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules_imported(tree: ast.AST, known: Container[str]) -> set[str]:
    """Those of `known` that are imported at some time, in functions too; not for type checkers."""
    idle = [
        node
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test).endswith("TYPE_CHECKING")
        for node in ast.walk(block)
    ]
    found: set[str] = set()
    for node in ast.walk(tree):
        if node in idle:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in known else str(node.module))
    return {name for name in found if name in known}


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """What is left without all that imports nothing left, or is imported by nothing left."""
    left = dict(graph)
    while True:
        wanted = set().union(*left.values()) if left else set()
        loose = [n for n in left if n not in wanted or not left[n] & left.keys()]
        if not loose:
            return sorted(left)
        for name in loose:
            del left[name]


def test_no_module_imports_itself_in_a_circle():
    known = {module_of(path): path for path in MODULES}
    graph = {name: modules_imported(parsed(path), known) for name, path in known.items()}
    assert circle(graph) == []


RESEARCH, REPRODUCE = "fedcal.experiments.research", "fedcal.experiments.cli.reproduce"


def test_no_product_imports_research():
    known = {module_of(path): path for path in MODULES}
    found = {
        name: sorted(m for m in modules_imported(parsed(path), known) if m.startswith(RESEARCH))
        for name, path in known.items()
        if not name.startswith(RESEARCH)
    }
    assert [name for name, imported in found.items() if imported] == [REPRODUCE]


SAME_IDEA = {
    *("base", "config", "page", "record", "result", "rows", "run"),
    *("temperature", "scaling", "search", "histograms", "confidence", "evaluation", "conformal"),
    *("training", "spread", "single_metrics", "unary", "exponential", "gaussian", "crossing"),
    *("prior", "judged", "verify"),
    *("artifact", "simulation", "curves", "plan", "features", "report", "flower_app"),
}
"""Names that several modules of the product may have: they are of one idea."""


def test_a_module_s_name_is_that_of_one_idea_and_no_folder_is_wide():
    of_product = [p for p in MODULES if RESEARCH.rpartition(".")[2] not in p.parts]
    named = [p for p in of_product if not p.stem.startswith("__")]
    often = {stem for stem, n in Counter(p.stem for p in named).items() if n > 1}
    assert often == SAME_IDEA
    wide = {str(f): n for f, n in Counter(p.parent for p in named).items() if n > 15}
    assert wide == {}


FLOWER, INTERNALS = re.compile(r"flwr(\.(app|clientapp|serverapp)(\.\w+)*)?"), "flower_internals.py"
"""What Flower promises, and the one file that names the rest."""


def private_flower(tree: ast.AST) -> set[str]:
    """What is not public of Flower, imported or named in a text such as a script."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.partition(".")[0] == "flwr"}
        elif isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "flwr":
            found |= {
                f"{node.module}.{a.name}" if node.module == "flwr" else str(node.module)
                for a in node.names
            }
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= set(re.findall(r"(?:from|import) (flwr\b[\w.]*)", node.value))
            found |= set(re.findall(r"^flwr\.\w+[\w.:]*$", node.value))
    return {name for name in found if not FLOWER.fullmatch(name)}


def test_what_flower_does_not_promise_is_named_in_one_file():
    """Research, which compares with Flower's own sums, aside."""
    for source in (
        "import flwr.cli.app",
        "from flwr import common",
        "x = 'flwr.supercore.run:Run'",
        "from flwr.supernode import cli",
        "x = 'import os\\nfrom flwr.cli.app import app'",
    ):
        assert private_flower(ast.parse(source)), source
    for source in ("import flwr", "from flwr.serverapp.strategy import Result", "x = 'flwr run .'"):
        assert not private_flower(ast.parse(source)), source
    product = [path for path in MODULES if "research" not in path.parts]
    assert [p.name for p in product if private_flower(parsed(p))] == [INTERNALS]


def pickles(tree: ast.AST) -> list[str]:
    found = [name for name in sorted(imports(tree, "")) if name in PICKLES]
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            value = node.value
            if not (isinstance(value, ast.Constant) and value.value is False):
                found.append(f"allow_pickle={ast.unparse(value)}")
    return found


def global_randomness(tree: ast.AST) -> list[str]:
    found = [name for name in ("random",) if name in imports(tree, "")]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr not in KEYED:
            text = ast.unparse(node)
            if text.startswith(("np.random.", "numpy.random.")) and text.count(".") == 2:
                found.append(text)
        if isinstance(node, ast.ImportFrom) and node.module == "numpy.random":
            found += [alias.name for alias in node.names if alias.name not in KEYED]
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("random.default_rng"):
            found += [] if node.args or node.keywords else [ast.unparse(node)]
    return found


def asserts(tree: ast.AST) -> list[str]:
    return [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Assert)]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def offenders(check: Callable[[ast.Module, Path], Collection[str]]) -> dict[str, list[str]]:
    """Name of a module -> what a check found there; modules without a finding are left out."""
    found = {path: check(parsed(ROOT / path), Path(path)) for path in NAMES}
    return {path: sorted(findings) for path, findings in found.items() if findings}


def test_imports_point_one_way():
    assert offenders(forbidden_imports) == {}


def test_heavy_packages_are_imported_where_used():
    heavy = offenders(lambda tree, path: imports_at_import(tree, path.parts[0]) & HEAVY)
    assert heavy == {path: sorted(packages) for path, packages in OPTIONAL.items()}


def test_house_rules():
    for check in (pickles, global_randomness, asserts):
        assert offenders(lambda tree, path, check=check: check(tree)) == {}
    assert {Path(name).parts[0] for name in NAMES} == set(PACKAGES)
    for name in (
        "clients/client_app.py",
        "strategies/server/transport.py",
        "experiments/runs/engines/flower.py",
    ):
        assert "flwr" in imports(parsed(ROOT / name), "")


FORBIDDEN = [
    ("fedcal/x.py", "def f():\n    import flwr.app"),
    ("fedcal/x.py", "from fedcal.clients.answers import answer"),
    ("strategies/method.py", "from flwr.app import Message"),
    ("clients/client_app.py", "import fedcal.strategies"),
    ("strategies/x.py", "from fedcal import clients"),
    ("strategies/x.py", "x = import_module('fedcal.clients.answers')"),
    ("strategies/x.py", "app = 'fedcal.experiments.cli.main:main'"),
    ("strategies/x.py", "from clients.answers import answer"),
    ("clients/x.py", "from ..strategies import base"),
    ("fedcal/__main__.py", "import fedcal.strategies"),
]
LOADED = [
    ("import torch", True),
    ("try:\n    import ray.data\nexcept ImportError:\n    pass", True),
    ("if TYPE_CHECKING:\n    import torch", False),
]
BROKEN = [
    *((pickles, f"np.load(f, allow_pickle={value})") for value in ("True", "flag")),
    (pickles, "import pickle"),
    *((global_randomness, f"np.random.{call}") for call in ("seed(0)", "default_rng()")),
    (global_randomness, "import random"),
    (global_randomness, "from numpy.random import rand"),
    (asserts, "def f(x):\n    assert x > 0"),
]
KEPT = (
    '"""m"""\n'
    "rng = np.random.Generator(np.random.Philox(key=key))\n"
    "np.load(f, allow_pickle=False)\n"
    "def _hidden(): pass\n"
)


def test_what_breaks_a_rule_is_seen():
    for where, source in FORBIDDEN:
        assert forbidden_imports(ast.parse(source), Path(where)), (where, source)
    for name in (
        "clients/client_app.py",
        "strategies/server/transport.py",
        "strategies/server_app.py",
    ):
        assert not forbidden_imports(ast.parse("from flwr.app import Message"), Path(name))
    for source, heavy in LOADED:
        assert bool(imports_at_import(ast.parse(source), "") & HEAVY) is heavy, source
    for check, source in BROKEN:
        assert check(ast.parse(source)), source
        assert check(ast.parse(KEPT)) == []


def public_names(tree: ast.Module, package: str) -> set[str]:
    """What a module defines and, in an `__init__`, takes from its own package; no underscores."""
    found: set[str] = set()
    lazy = [
        n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"
    ]
    for node in [*tree.body, *(statement for block in lazy for statement in block.body)]:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{package}."):
            found |= {alias.asname or alias.name for alias in node.names}
    return {name for name in found if not name.startswith("_") or name == "__version__"}


WITH_ALL = [path for path in MODULES if "\n__all__ = " in path.read_text("utf-8")]


def wrong_all(path: Path) -> list[str]:
    """What is wrong with the `__all__` of a module."""
    relative = path.relative_to(ROOT).with_suffix("")
    if relative.parts[0] in ROOMS:
        relative = "fedcal" / relative
    own = relative.parts[:-1] if path.name == "__init__.py" else (*relative.parts[:-1], "nobody's")
    name = ".".join(relative.parts[:-1] if path.name == "__init__.py" else relative.parts)
    module = importlib.import_module(name)
    told, public = Counter(module.__all__), public_names(parsed(path), ".".join(own))
    wrong = [f"{n} stands there twice" for n, times in told.items() if times > 1]
    wrong += [f"{n} is not public" for n in set(told) - public]
    wrong += [f"{n} is missing" for n in public - set(told)]
    return wrong + [f"{n} does not exist" for n in told if not hasattr(module, n)]


def test_all_is_exactly_what_is_public():
    stems = {str(path.relative_to(ROOT).parent) for path in WITH_ALL if path.stem == "__init__"}
    assert stems >= {"fedcal", "fedcal/metrics", "fedcal/calibrators", "strategies", "experiments"}
    wrong = {str(path.relative_to(ROOT)): wrong_all(path) for path in WITH_ALL}
    assert {path: what for path, what in wrong.items() if what} == {}


def python(code: str, cwd: Path, *path: Path) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter that finds `path` first and then this project."""
    search = os.pathsep.join(map(str, (*path, ROOT)))
    return subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": search, "FLWR_TELEMETRY_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_fresh_import_loads_nothing_heavy(tmp_path):
    """Nor the science Flower; and what simulates needs no locks of POSIX."""
    show = "print(*sys.modules)"
    privacy = ("privacy.noise_plan", "privacy.curator")
    names = ("calibrators", "datasets", "metrics", "partition", *privacy)
    science = "; ".join(f"import fedcal.{name}" for name in (*names, "secure_aggregation"))
    rooms = "import fedcal.clients, fedcal.strategies, fedcal.experiments.cli.main"
    locks = "import sys; sys.modules['fcntl'] = None"
    simulation = "import fedcal.experiments.runs.simulation"
    code = f"{locks}; import fedcal; {show}; {science}; {show}; {rooms}; {show}; {simulation}"
    done = python(code, tmp_path)
    assert done.returncode == 0, done.stderr
    nothing, light, loaded = (set(line.split()) for line in done.stdout.splitlines())
    assert nothing & {"numpy", "flwr", "fedcal.experiments"} == set()
    assert "fedcal.privacy.curator" in light
    assert light & {"flwr", *(f"fedcal.{room}" for room in ROOMS)} == set()
    assert {"fedcal.strategies.base", "fedcal.experiments.cli.main", "flwr"} <= loaded
    # the last two are ours to load late: with matplotlib they take longer than everything else
    assert loaded & (HEAVY | {"scipy.stats", "dp_accounting"}) == set()


def test_a_clone_s_packages_are_found_from_its_root_and_from_elsewhere(tmp_path):
    code = "; ".join(f"import fedcal.{room}; print(fedcal.{room}.__file__)" for room in ROOMS)
    assert not any((ROOT / "fedcal" / room).exists() for room in ROOMS)  # mapped by setup.py
    for folder in (ROOT, tmp_path):
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
        )
        found = [Path(line) for line in done.stdout.splitlines()]
        assert found == [ROOT / room / "__init__.py" for room in ROOMS], (folder, done.stderr)


def test_other_packages_of_the_rooms_names_do_not_matter(tmp_path):
    """And a room itself has one import name."""
    for name in ROOMS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('a foreign package')\n")
    code = "; ".join(f"import fedcal.{room}; print(fedcal.{room}.__file__)" for room in ROOMS)
    done = python(code, tmp_path, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    found = [Path(line).resolve() for line in done.stdout.splitlines()]
    assert found == [ROOT / room / "__init__.py" for room in ROOMS]
    tried = "for room in {0}:\n try: __import__(room)\n except ImportError as e: print(e)"
    done = python(tried.format(ROOMS), tmp_path)
    assert done.stdout.splitlines() == [f"import fedcal.{room}, not {room}" for room in ROOMS]


def test_each_source_file_has_tests_and_a_table_says_where_where_its_name_does_not():
    table = tomllib.loads((TESTS / "tested_by.toml").read_text("utf-8"))
    used = set[str]()
    for path in (p.relative_to(ROOT) for p in MODULES if not p.stem.startswith("__")):
        if not (TESTS / path.parent / f"test_{path.stem.lstrip('_')}.py").exists():
            found = next((pattern for pattern in table if fnmatch(str(path), pattern)), None)
            assert found is not None, f"{path} has no tests that tests/tested_by.toml names"
            used.add(found)
    assert used == table.keys()  # none is left over
    assert [name for name in table.values() if not (TESTS / name).exists()] == []
