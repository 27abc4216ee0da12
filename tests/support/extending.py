"""`docs/guide/extend.md`, followed to the letter in a copy of the repository."""

import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "guide" / "extend.md"


@dataclass
class Recipe:
    """A section of the page: whole files, rows (path, what is added there), what is typed."""

    title: str
    files: dict[str, str] = field(default_factory=dict)
    rows: list[tuple[str, str]] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)


def included(block: str) -> str:
    """The file that a `literalinclude` names."""
    return (PAGE.parent / block.splitlines()[0].split()[1]).read_text("utf-8")


def recipes() -> list[Recipe]:
    """All sections with a file in them."""
    found = []
    for section in PAGE.read_text("utf-8").split("\n## ")[1:]:
        recipe = Recipe(section.partition("\n")[0])
        end = 0
        for block in re.finditer(r"^```(\S+).*?\n(.*?)^```$", section, re.DOTALL | re.MULTILINE):
            before = re.sub(r"<!--.*?-->", "", section[end : block.start()]).strip()
            end = block.end()
            if block[1] == "{literalinclude}":
                (name,) = re.findall(r"^`([\w/]+\.py)`:$", before, re.M)
                recipe.files[name] = included(block[0])
            elif block[1] == "diff":
                recipe.rows.append((re.findall(r"`([\w/]+\.py)`", before)[-1], block[2]))
            elif block[1] == "console":
                recipe.commands += [line[2:] for line in block[2].splitlines() if line[:2] == "$ "]
        if recipe.files:
            found.append(recipe)
    return found


def follow(recipe: Recipe, copy: Path) -> None:
    """Write the files and add the rows."""
    for name, text in recipe.files.items():
        assert not (copy / name).exists(), name
        (copy / name).write_text(text, "utf-8")
    for name, block in recipe.rows:
        add(copy / name, block)


def add(path: Path, block: str) -> None:
    """Put lines where a block says; the lines without a sign stand in the file exactly once."""
    text = path.read_text("utf-8")
    for hunk in block.split("@@\n"):
        lines = hunk.splitlines(keepends=True)
        old = "".join(line[1:] for line in lines if line[0] in " -")
        assert text.count(old) == 1, f"{path.name}: {old!r}"
        text = text.replace(old, "".join(line[1:] for line in lines if line[0] in " +"))
    path.write_text(text, "utf-8")


def copied(folder: Path) -> Path:
    """A copy of the tracked files with one commit, so that git tells what changed.

    Links stand for the map of `setup.py`: the copy can be imported without an install.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    for package in ("clients", "strategies", "experiments"):
        (folder / "fedcal" / package).symlink_to(f"../{package}")
    git(folder, "init", "--quiet")
    keep(folder)
    return folder


def keep(copy: Path) -> None:
    """Commit all that is there."""
    git(copy, "add", "--all")
    git(copy, "-c", "user.name=x", "-c", "user.email=x@x", "commit", "--quiet", "-m", "x")


def git(copy: Path, *words: str) -> str:
    """What git says."""
    done = subprocess.run(["git", *words], cwd=copy, capture_output=True, text=True, check=True)
    return done.stdout
