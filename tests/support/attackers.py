"""A study at an office and three hospitals, each a folder with a home of its own, as a stranger
finds it on disk: people type commands, and an attacker changes files between them.
"""

import contextlib
import io
import json
import os
import shutil
import signal
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hospitals import SITES, table, write_rows

from fedcal.cli.main import main
from fedcal.run.engines.tls import make_site_key
from fedcal.secure_aggregation.keys import SigningKey, make_key, read_key
from fedcal.sites.sealed import signed_text

HOMES = ("HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "FEDCAL_HOME")
CACHES = ("matplotlib", "fontconfig", "cache")
PATIENCE = 10  # seconds: a command that reads a fifo waits for ever


def fedcal(*words: object) -> SimpleNamespace:
    """Type a command; its exit code, and what it printed as `out` and `err`."""

    def too_long(*_: object) -> None:
        pytest.fail("the command waits for ever")

    out, err, code = io.StringIO(), io.StringIO(), 0
    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(PATIENCE)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main([*map(str, words)])
    except SystemExit as ended:
        code = ended.code
    except Exception as error:  # noqa: BLE001  people see a traceback, and code 1
        code = err.write(f"Traceback: {type(error).__name__}: {error}\n") and 1
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return SimpleNamespace(code=code, out=out.getvalue(), err=err.getvalue())


def tree(folder: Path) -> dict[str, tuple[int, str]]:
    """Mode and contents of every file below a folder; links are not followed."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode, name = path.lstat().st_mode, str(path.relative_to(folder))
        if not stat.S_ISDIR(mode) and not any(cache in name for cache in CACHES):
            held = path.read_bytes() if stat.S_ISREG(mode) else b""
            found[name] = (mode, os.readlink(path) if stat.S_ISLNK(mode) else held.hex())
    return found


def refused(call: Callable[[], SimpleNamespace], watched: Path, naming: str) -> None:
    """A command is refused in one line with one of `a|b`, and changes no file that is watched."""
    before, output = tree(watched), call()
    assert output.code == 2, f"exit {output.code}: {output.out[-300:]}{output.err}"
    line = output.err.removesuffix("\n")
    assert line.startswith("fedcal: error: "), line
    assert line.isprintable(), repr(line)  # so it is one, and no terminal obeys it
    assert any(word.casefold() in line.casefold() for word in naming.split("|")), line
    assert tree(watched) == before


def keys_in(folder: Path) -> dict[str, Path]:
    """Files with a private key below a folder: by its public half, if fedcal signs by it."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and b"PRIVATE KEY" in path.read_bytes():
            signs = path.read_bytes().startswith(b"-----BEGIN PRIVATE KEY")
            found[read_key(path).public.hex() if signs else str(path)] = path
    return found


def signed(fields: dict[str, Any], purpose: str, key: SigningKey) -> str:
    """A file of a study, signed."""
    plain = {name: value for name, value in fields.items() if name != "signature"}
    return signed_text(plain, purpose, key)


def forged(text: str, purpose: str, key: SigningKey, change: Callable[[Any], object]) -> str:
    """A file that `key` has signed, changed and signed again."""
    fields = json.loads(text)
    change(fields)
    return signed(fields, purpose, key)


def plant_keys(folder: Path) -> None:
    """Make keys as a site has them, of the attacker's."""
    folder.mkdir(mode=0o700)
    make_key(folder / "signing.pem")
    make_site_key(folder, "connection", "alder")


class World:
    """Everybody's folders below one root, which can go back to an earlier day."""

    def __init__(self, root: Path) -> None:
        self.root, self.now = root, root / "now"
        self.office, self.planted = self.now / "office", self.now / "planted"
        self.sealed, self.forgery = self.office / "sepsis.sealed", self.now / "forged.sealed"

    def kit(self, site: str = "alder") -> Path:
        return self.now / site / site

    def env(self, names: str) -> dict[str, str]:
        return {name: str(self.now / names / "home" / name.lower()) for name in HOMES}

    def types(self, names: str, line: str) -> SimpleNamespace:
        """Sit down at the computer of one of them, and type."""
        with pytest.MonkeyPatch.context() as patch:
            for name, folder in self.env(names).items():
                Path(folder).mkdir(parents=True, exist_ok=True)
                patch.setenv(name, folder)
            patch.chdir(self.now / names)
            return fedcal(*line.split())

    def does(self, names: str, line: str) -> str:
        """Type what succeeds; what is printed."""
        output = self.types(names, line)
        assert output.code == 0, output.err
        return str(output.out)

    def is_refused(self, names: str, line: str, naming: str = "") -> None:
        refused(lambda: self.types(names, line), self.now, naming)

    def shell(self, script: str, folder: Path) -> None:
        """What the attacker does, with keys in $K and somebody else's files in $E."""
        env = {**os.environ, "LC_ALL": "C.UTF-8", "K": "../../planted", "E": "../../elsewhere"}
        subprocess.run(["bash", "-ec", script], cwd=folder, env=env, check=True)

    def back_to(self, day: str) -> "World":
        shutil.rmtree(self.now, ignore_errors=True)
        shutil.copytree(self.root / day, self.now, symlinks=True)
        return self

    def init(self) -> None:
        self.office.mkdir(parents=True)
        words = "--classes survived,sepsis --server localhost:9092"
        self.does("office", f"study init sepsis.toml --sites {','.join(SITES)} {words}")

    def begin(self) -> None:
        """A day each: the kits are there, all have joined, it is sealed, all have accepted."""
        self.init()
        self.does("office", "study kit sepsis.toml")
        plant_keys(self.planted)
        shutil.copytree(self.planted, self.now / "elsewhere" / "deep")
        (self.now / "elsewhere" / "report.html").write_text("somebody else's")
        for seed, site in enumerate(SITES):
            shutil.copytree(self.office / "sepsis-kits" / site, self.kit(site))
            write_rows(self.now / site / "rows.csv", table(seed=seed))
        steps = {"joined": self.join, "sealed": lambda _: self.seal(), "accepted": self.accept}
        shutil.copytree(self.now, self.root / "kits", symlinks=True)
        for day, step in steps.items():
            [step(site) for site in SITES[: 1 if day == "sealed" else None]]
            shutil.copytree(self.now, self.root / day, symlinks=True)

    def join(self, site: str = "alder", more: str = "") -> dict[str, Any]:
        """Join, and mail the .join file; what is in it."""
        self.does(site, f"site join {site} rows.csv {more}")
        shutil.copy(self.now / site / f"{site}.join", self.office)
        return self.sent(site)

    def sent(self, site: str) -> dict[str, Any]:
        return dict(json.loads((self.office / f"{site}.join").read_text("utf-8")))

    def seal(self) -> str:
        return self.does("office", "study seal sepsis.toml alder.join birch.join cedar.join")

    def accept(self, site: str = "alder") -> str:
        return self.does(site, f"site accept {site} {self.sealed} --yes")

    def forge(self, change: Callable[[Any], object], text: str = "") -> str:
        """Change what the coordinator sealed, and sign it by the same key; alder accepts it so."""
        key = read_key(self.office / "sepsis-coordinator" / "coordinator.pem")
        text = forged(text or self.sealed.read_text("utf-8"), "study-sealed", key, change)
        self.forgery.write_text(text, "utf-8")
        return f"site accept alder {self.forgery} --yes"
