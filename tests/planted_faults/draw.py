"""Draw mechanical faults by a seed: `python tests/planted_faults/draw.py --seed 52 PATH ...`.

A function is drawn, then a change in it; no function twice. Prints rows of `faults.toml` without
tests: `python tests/planted_faults --whole NAME` names one that catches a row.
"""

import argparse
import ast
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from rows import ROOT, Fault, block

SWAPS: dict[type[ast.AST], str] = {
    **{ast.Lt: ">=", ast.Gt: "<=", ast.LtE: "<", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="},
    **{ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is"},
    **{ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*"},
}
TWINS = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum"}
TWINS |= {"maximum": "minimum", "argmin": "argmax", "argmax": "argmin", "floor": "ceil"}
HARMLESS = (None, "help", "file", "encoding", "strict", "end", "flush", "newline")
"""Arguments by name that no result depends on."""


def changes(function: ast.FunctionDef) -> Iterator[tuple[ast.expr, str]]:
    """Each change of a function's body: a node, and the text in its place."""
    for node in (n for statement in function.body for n in ast.walk(statement)):
        match node:
            case ast.Compare(left, [operator], [right]):
                yield node, f"{source(left)} {SWAPS[type(operator)]} {source(right)}"
            case ast.BinOp(left, operator, right) if type(operator) in SWAPS and not words(node):
                yield node, f"({source(left)}) {SWAPS[type(operator)]} ({source(right)})"
            case ast.UnaryOp(ast.USub(), operand) if not isinstance(operand, ast.Constant):
                yield node, source(operand)
            case ast.Constant(int() as number) if not isinstance(number, bool):
                yield node, str(number + 1)
            case ast.BoolOp(operator, values):
                joined = " or " if isinstance(operator, ast.And) else " and "
                yield node, joined.join(f"({source(v)})" for v in values)
            case ast.IfExp(test, _, orelse):
                yield node, source(orelse)
            case ast.If(test):
                yield test, "False"
            case ast.Call(func, arguments, keywords):
                name = func.attr if isinstance(func, ast.Attribute) else source(func)
                if name in TWINS:
                    yield func, source(func).removesuffix(name) + TWINS[name]
                if keywords and keywords[-1].arg not in HARMLESS:
                    call = ast.Call(func, arguments, keywords[:-1])
                    yield node, source(call)


def source(node: ast.expr) -> str:
    return ast.unparse(node)


def words(node: ast.expr) -> bool:
    """Return whether an expression holds text, whose sums are no arithmetic."""
    return any(
        isinstance(n, ast.JoinedStr) or (isinstance(n, ast.Constant) and isinstance(n.value, str))
        for n in ast.walk(node)
    )


def fault(path: Path, function: ast.FunctionDef, node: ast.expr, new: str) -> Fault | None:
    """The row of a change: its whole lines, and lines around them until they stand once."""
    text = path.read_text("utf-8")
    lines = text.splitlines(keepends=True)
    first, last = node.lineno - 1, node.end_lineno or node.lineno
    before = len("".join(lines[:first]).encode()) + node.col_offset
    after = len("".join(lines[: last - 1]).encode()) + (node.end_col_offset or 0)
    raw = text.encode()
    broken = (raw[:before] + b"(" + new.encode() + b")" + raw[after:]).decode()
    added = broken.count("\n") - text.count("\n")
    while text.count("".join(lines[first:last])) != 1:
        if first > function.lineno - 1:
            first -= 1
        elif last < (function.end_lineno or 0):
            last += 1
        else:
            return None
    changed = broken.splitlines(keepends=True)
    old = raw[before:after].decode()
    place = path.relative_to(ROOT).with_suffix("").as_posix()
    return Fault(
        f"drawn_{place.replace('/', '_')}_{function.name}".replace("__", "_"),
        path.relative_to(ROOT).as_posix(),
        "".join(lines[first:last]),
        "".join(changed[first : last + added]),
        f"In {function.name}: {' '.join(old.split())} -> {' '.join(new.split())}.",
        (),
    )


def functions(paths: list[str], leave: list[str]) -> Iterator[tuple[Path, ast.FunctionDef]]:
    for top in paths:
        for path in sorted((ROOT / top).rglob("*.py")):
            if any(part in path.relative_to(ROOT).as_posix() for part in leave):
                continue
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.FunctionDef) and node.name != "__repr__":
                    yield path, node


def drawn(seed: int, number: int, paths: list[str], leave: list[str]) -> dict[str, Fault]:
    """Draw the faults of as many functions, by name."""
    rng = random.Random(seed)
    chosen = list(functions(paths, leave))
    rng.shuffle(chosen)
    found: dict[str, Fault] = {}
    for path, function in chosen:
        options = list(changes(function))
        made = fault(path, function, *rng.choice(options)) if options else None
        if made is not None and len(found) < number:
            found.setdefault(made.name, made)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="+", help="folders, from the root")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--faults", type=int, default=150)
    parser.add_argument("--leave", nargs="*", default=[], help="parts of paths without faults")
    given = parser.parse_args()
    rows = drawn(given.seed, given.faults, given.paths, given.leave)
    sys.stdout.write("\n".join("".join(block(row)) for row in rows.values()))
