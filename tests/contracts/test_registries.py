"""Mechanisms, trust models and units are asked, never named: no dispatch outside their folders."""

import ast
from abc import ABC
from pathlib import Path

import pytest

import fedcal
from fedcal import trust
from fedcal.core.imports import registry
from fedcal.mechanisms import MECHANISMS, PRIVATE
from fedcal.trust import TRUSTS
from fedcal.units import UNITS

ROOT = Path(fedcal.__file__).resolve().parents[1]
HOMES = ("fedcal/mechanisms/", "fedcal/trust.py", "fedcal/units.py", "experiments/")
MODULES = sorted(
    path
    for folder in ("fedcal", "clients", "strategies", "experiments")
    for path in (ROOT / folder).rglob("*.py")
)
CLASSES = {member.__name__ for member in (*MECHANISMS.values(), *UNITS.values())}
CLASSES |= {name for name, one in vars(trust).items() if isinstance(one, trust.Trust)}
NAMES = {*PRIVATE, *TRUSTS, *UNITS}
COLUMN = (
    *("fedcal/run/training_data.py", "experiments/shipped/hospitals.py"),
    *("experiments/shipped/mmlu.py", "fedcal/datasets/_arrays.py"),
    *("fedcal/datasets/_dataset.py", "fedcal/cli/apply.py", "fedcal/sites/rows.py"),
    *("fedcal/sites/joining.py", "fedcal/sites/quarter_page.py"),
)
OTHERS = {
    ("strategies/methods/quantiles.py", "exponential"): "a quantile rule of that name",
    ("fedcal/run/engines/ray.py", "local"): "an address of Ray",
    ("clients/site/guard.py", "subject"): "a part of a client, which that unit protects",
    **{(file, "subject"): "a column of data" for file in COLUMN},
}
"""Words that are something else there."""


def named(tree: ast.AST) -> list[str]:
    """Literals that are the name of a mechanism, a trust model or a unit."""
    return [
        str(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in NAMES
    ]


def asked_for_type(tree: ast.AST) -> list[str]:
    """Calls of `isinstance` and its kin with one of the classes."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
            classes = {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
            found += [ast.unparse(node)] if classes & CLASSES else []
    return found


def tables(tree: ast.AST) -> list[str]:
    """Tables keyed by two of them or more, by class or by name."""

    def one_of_them(key: ast.expr | None) -> bool:
        if isinstance(key, ast.Attribute) and key.attr in ("name", "__name__"):
            key = key.value
        if isinstance(key, ast.Constant):
            return key.value in NAMES
        return isinstance(key, ast.Name) and key.id in CLASSES

    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Dict) and sum(map(one_of_them, node.keys)) >= 2
    ]


def offences(tree: ast.AST, name: str) -> list[str]:
    """Return the places of a module that decide by a name or a type."""
    words = [repr(word) for word in named(tree) if (name, word) not in OTHERS]
    return [f"{name}: {text}" for text in (*words, *asked_for_type(tree), *tables(tree))]


def test_nobody_decides_by_a_name_or_a_type():
    found = []
    for path in MODULES:
        name = str(path.relative_to(ROOT))
        if not name.startswith(HOMES):
            found += offences(ast.parse(path.read_text("utf-8")), name)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("member", [*MECHANISMS.values(), *UNITS.values()])
def test_what_is_missing_is_found_at_import(member):
    base = next(cls for cls in member.__mro__ if cls.__bases__ in ((ABC,), (object,)))
    with pytest.raises(TypeError, match="Bare lacks"):
        registry(type("Bare", (base,), {"name": "bare"}))
    assert list(registry(member).values()) == [member]


def test_two_of_one_name_are_refused():
    with pytest.raises(TypeError, match="Laplace and Laplace are both called 'laplace'"):
        registry(MECHANISMS["laplace"], MECHANISMS["laplace"])
