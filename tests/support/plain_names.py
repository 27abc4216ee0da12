"""Find words that names and docstrings do without; part of `make lint`.

    python tests/support/plain_names.py        prints each place; exit code 1 if there is any

A name says what a thing is, in the field's noun or verb; a docstring is a sentence; no two classes
have one name. Of tests only the names are looked at, of `experiments` all but classes.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("fedcal", "clients", "strategies", "experiments", "tests")
WORDS = {"law", "judged", "told", "dealt", "said", "wanted", "who", "way", "whole"}
WORDS |= {"enlist", "meet", "hear"}
OPENINGS = {"What", "Whether", "Who", "Whom", "Whose", "Of", "That", "How", "Where", "Why", "Which"}
CONTRACTS = {
    *(
        "clients/any_app.py who",
        "clients/client_app.py who",
        "clients/site/process/site_app.py who",
    ),
    *("fedcal/units.py whole", "fedcal/privacy/query.py whole"),
    "experiments/studies/evaluation/intervals.py dealt",
}
"""Names that messages and files have: file and name."""


def words_of(name: str) -> set[str]:
    """Return the words of a name in snake or camel case, in lower case."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def name_of(node: ast.AST) -> str:
    """Return the name that a node defines or binds, or ""."""
    if isinstance(node, ast.Name | ast.Attribute) and not isinstance(node.ctx, ast.Store):
        return ""
    return (
        next(
            (getattr(node, key) for key in ("name", "id", "attr", "arg") if hasattr(node, key)), ""
        )
        or ""
    )


def docstrings(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and text of the docstrings in a body, those of constants and fields too."""
    body = getattr(node, "body", ())
    for one in body if isinstance(body, list) else ():
        if isinstance(one, ast.Expr) and isinstance(text := getattr(one.value, "value", 0), str):
            yield one.lineno, text.strip()


def places() -> Iterator[str]:
    """Yield each place: file, line, and what stands there."""
    classes = defaultdict[str, list[str]](list)
    for path in (p for folder in FOLDERS for p in sorted((ROOT / folder).rglob("*.py"))):
        at = path.relative_to(ROOT)
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            where = f"{at}:{getattr(node, 'lineno', 1)}"
            name = name_of(node)
            if not isinstance(node, ast.alias | ast.keyword) and f"{at} {name}" not in CONTRACTS:
                for word in words_of(name) & WORDS:
                    yield f"{where}: {word} in the name {name}"
            if at.parts[0] == "tests":
                continue
            for line, text in docstrings(node):
                if (word := text.split()[0]) in OPENINGS:
                    yield f"{at}:{line}: a docstring begins with {word}"
            if isinstance(node, ast.ClassDef) and at.parts[0] != "experiments":
                classes[name].append(where)
    for name, found in classes.items():
        if len(found) > 1:
            yield f"{' and '.join(found)}: two classes {name}"


if __name__ == "__main__":
    found = list(places())
    print("\n".join(found) or "names and docstrings are plain")
    sys.exit(bool(found))
