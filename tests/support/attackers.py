"""A study at an office and three hospitals, each a folder with a home of its own, as a stranger
finds it on disk: people type commands, and an attacker changes files between them.
"""

import contextlib
import csv
import hashlib
import io
import json
import os
import shutil
import signal
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcal.experiments.cli.main import main
from fedcal.secure_aggregation.keys import SigningKey, read_key

SITES = ("alder", "birch", "cedar")
HOMES = ("HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "FEDCAL_HOME")
CACHES = ("matplotlib", "fontconfig", "cache")
PATIENCE = 10  # seconds: a command that reads a fifo waits for ever


@dataclass(frozen=True)
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str


def fedcal(*words: object) -> Said:
    """Type a command."""

    def too_long(*_: object) -> None:
        pytest.fail("the command waits for ever")

    out, err = io.StringIO(), io.StringIO()
    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(PATIENCE)
    code: Any = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main([*map(str, words)])
    except SystemExit as ended:
        code = ended.code
    except Exception as error:  # noqa: BLE001  people see a traceback, and code 1
        code = 1
        err.write(f"Traceback: {type(error).__name__}: {error}\n")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return Said(code, out.getvalue(), err.getvalue())


def tree(folder: Path) -> dict[str, tuple[int, str]]:
    """Mode and contents of every file below a folder; links are not followed."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode, name = path.lstat().st_mode, str(path.relative_to(folder))
        if stat.S_ISDIR(mode) or any(cache in name for cache in CACHES):
            continue
        held = os.readlink(path) if stat.S_ISLNK(mode) else ""
        if stat.S_ISREG(mode):
            held = hashlib.sha256(path.read_bytes()).hexdigest()
        found[name] = (mode, held)
    return found


def refused(call: Callable[[], Said], watched: Path, *naming: str) -> str:
    """A command is refused in one line that has one of these words, and changes no file."""
    before, said = tree(watched), call()
    assert said.code == 2, f"exit {said.code}: {said.out[-300:]}{said.err}"
    line = said.err.removesuffix("\n")
    assert line.startswith("fedcal: error: "), line
    assert line.isprintable(), repr(line)  # so it is one, and no terminal obeys it
    assert not naming or any(word.casefold() in line.casefold() for word in naming), line
    assert tree(watched) == before
    return line


def keys_in(folder: Path) -> dict[str, Path]:
    """Files with a private key below a folder; by its public half, if it signs."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and b"PRIVATE KEY" in path.read_bytes():
            with contextlib.suppress(Exception):
                found[read_key(path).public.hex()] = path
            if path not in found.values():
                found[str(path)] = path
    return found


def signed_anew(fields: dict[str, Any], purpose: str, key: SigningKey) -> str:
    """A signed file of a study: what is signed is a digest of one line of JSON."""
    plain = {name: value for name, value in fields.items() if name != "signature"}
    line = json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()
    label = f"fedcal/secure-sum/1/{purpose}".encode() + b"\0" + len(line).to_bytes(8, "little")
    signature = key.sign(purpose, hashlib.sha256(label + line).digest()).hex()
    return json.dumps(plain | {"signature": signature}, indent=1, sort_keys=True) + "\n"


def forged(text: str, purpose: str, key: SigningKey, change: Callable[[Any], object]) -> str:
    """A file that `key` has signed, changed and signed again."""
    fields = json.loads(text)
    same = json.loads(signed_anew(fields, purpose, key))
    assert same == fields, "files are signed in another way: the attacker has to learn it"
    change(fields)
    return signed_anew(fields, purpose, key)


class World:
    """Everybody's folders below one root, which can go back to an earlier day."""

    def __init__(self, root: Path) -> None:
        self.root, self.now = root, root / "now"
        self.office, self.elsewhere = self.now / "office", self.now / "elsewhere"
        self.sealed, self.forgery = self.office / "sepsis.sealed", self.now / "forged.sealed"

    def kit(self, site: str = "alder") -> Path:
        return self.now / site / site

    @contextlib.contextmanager
    def at(self, who: str) -> Iterator[Path]:
        """Sit down at the computer of one of them."""
        folder = self.now / who
        with pytest.MonkeyPatch.context() as patch:
            for name in HOMES:
                (folder / "home" / name.lower()).mkdir(parents=True, exist_ok=True)
                patch.setenv(name, str(folder / "home" / name.lower()))
            patch.chdir(folder)
            yield folder

    def types(self, who: str, *words: object) -> Said:
        with self.at(who):
            return fedcal(*words)

    def does(self, who: str, *words: object) -> str:
        """Type what succeeds; what is printed."""
        said = self.types(who, *words)
        assert said.code == 0, said.err
        return said.out

    def is_refused(self, who: str, *words: object, naming: tuple[str, ...] = ()) -> str:
        return refused(lambda: self.types(who, *words), self.now, *naming)

    def back_to(self, day: str) -> "World":
        shutil.rmtree(self.now, ignore_errors=True)
        shutil.copytree(self.root / day, self.now, symlinks=True)
        return self

    def begin(self) -> None:
        """A day each: the kits are there, all have joined, it is sealed, all have accepted."""
        for folder in (self.office, *(self.now / site for site in SITES), self.elsewhere / "deep"):
            folder.mkdir(parents=True)
        for name in ("report.html", "start.sh", "deep/signing.pem"):
            (self.elsewhere / name).write_text("a file of somebody else's\n")
        words = ("--classes", "survived,sepsis", "--server", "localhost:9092")
        self.does("office", "study", "init", "sepsis.toml", "--sites", ",".join(SITES), *words)
        self.does("office", "study", "kit", "sepsis.toml")
        for seed, site in enumerate(SITES):
            shutil.copytree(self.office / "sepsis-kits" / site, self.kit(site))
            write_rows(self.now / site / "rows.csv", seed)
        for day, step in (("kits", self.join), ("joined", self.seal), ("sealed", self.accept)):
            shutil.copytree(self.now, self.root / day, symlinks=True)
            if step == self.seal:
                self.seal()
            else:
                [step(site) for site in SITES]
        shutil.copytree(self.now, self.root / "accepted", symlinks=True)

    def join(self, site: str = "alder", *more: str) -> dict[str, Any]:
        """Join, and mail the .join file; what is in it."""
        self.does(site, "site", "join", site, "rows.csv", *more)
        sent = self.now / site / f"{site}.join"
        shutil.copy(sent, self.office)
        fields: dict[str, Any] = json.loads(sent.read_text("utf-8"))
        return fields

    def seal(self) -> str:
        return self.does("office", "study", "seal", "sepsis.toml", *map("{}.join".format, SITES))

    def accepts(self, site: str = "alder", file: Path | None = None) -> Said:
        return self.types(site, "site", "accept", site, file or self.sealed, "--yes")

    def accept(self, site: str = "alder") -> str:
        said = self.accepts(site)
        assert said.code == 0, said.err
        return said.out

    def coordinator(self) -> SigningKey:
        return read_key(self.office / "sepsis-coordinator" / "coordinator.pem")

    def forge(self, change: Callable[[Any], object], text: str = "") -> Path:
        """What the coordinator has sealed, changed and signed anew by the same key."""
        text = forged(
            text or self.sealed.read_text("utf-8"), "study-sealed", self.coordinator(), change
        )
        self.forgery.write_text(text, "utf-8")
        return self.forgery

    def sealed_by(self, key: SigningKey) -> Path:
        """The same study, sealed by another coordinator."""
        fields = json.loads(self.sealed.read_text("utf-8")) | {"coordinator": key.public.hex()}
        self.forgery.write_text(signed_anew(fields, "study-sealed", key), "utf-8")
        return self.forgery


def write_rows(path: Path, seed: int, n: int = 300) -> None:
    """Patients with one row each, of a model that is right."""
    rng = np.random.default_rng(seed)
    score = 1 / (1 + np.exp(-rng.normal(-1.0, 1.5, n)))
    label = np.where(rng.random(n) < score, "sepsis", "survived")
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(("score", "label", "subject"))
        lines.writerows(zip(score.round(6), label, (f"p{k}" for k in range(n)), strict=True))
