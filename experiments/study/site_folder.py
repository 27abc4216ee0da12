"""What lies in the folder that came by mail, and the site's own folder, where its keys are.

Whoever made a kit may have put more into it: keys that they know, a study that nobody has accepted,
links to other files of this user. So a kit holds plain files of a kit and nothing else, whatever
the site has made before; keys and what was accepted lie in a folder that no mail reaches.
"""

from __future__ import annotations

import filecmp
import json
import os
import shutil
from collections.abc import Collection
from contextlib import nullcontext
from pathlib import Path

from fedcal.clients.site.prepared import SITE, alone
from fedcal.core.errors import InputError
from fedcal.storage.atomic import path_of

SIGNING, CONNECTION = "signing.pem", "connection.key"
ACCEPTED, ROWS, MADE_IN = "study.sealed", "rows.json", "made-in"
"""In the site's own folder: its keys, what it has accepted, where its rows are, and its kit."""

STATE, HOME, KEYS = "state", "home", "keys"
"""Folders in a kit: of the running site, of its pages, and of keys, where fedcal 0.2 made them."""


def own_folder(study: str, site: str) -> Path:
    """Return the folder of a site's keys: `sites/STUDY/SITE` in `FEDCAL_HOME`.

    Without this variable in `~/.local/share/fedcal`; InputError for a user without a home.
    """
    home = path_of(os.environ.get("FEDCAL_HOME") or "~/.local/share/fedcal")
    if home.parts[0] == "~":
        raise InputError("this user has no home folder: set FEDCAL_HOME to a folder for keys")
    return home.absolute() / "sites" / study / site


def check_kit(folder: Path, known: Collection[str] | None = None) -> None:
    """InputError if a kit has more than these names, or a link or special file anywhere.

    None = of a site that has joined: keys, and links in place of its files, are refused.
    """
    if known is None:  # the site may be running: no look into what Flower makes and deletes
        paths = [*folder.glob("*"), *folder.glob("*/*")]
    else:
        flowers = folder.glob(f"{STATE}/flower-*/**/*")  # made anew at each start
        paths = sorted({*folder.rglob("*")} - {*flowers})
    for path in paths:
        top, is_kit = path.relative_to(folder).parts[0], not path.is_symlink()
        if known is None:
            is_kit &= top != KEYS
        elif path.is_dir():
            is_kit &= top in known and top in (STATE, HOME, KEYS)
        else:
            is_kit &= top in known and path.is_file() and path.stat().st_nlink == 1
        if not is_kit:
            raise InputError(
                f"{path} is not part of a kit. If it is yours, move it away; if this site made it "
                "by fedcal 0.2 or elsewhere, fedcal site join --made-here; else delete the folder, "
                "and ask for the kit again"
            )


def move_keys(folder: Path, own: Path) -> None:
    """Move a site's keys out of a kit; OSError if that cannot be, InputError if it has others."""
    old, state = folder / KEYS, folder / STATE
    names = (CONNECTION, "connection.pub", f"{SIGNING}.records", SIGNING)
    if strange := sorted({path.name for path in old.iterdir()} - {*names}):
        raise InputError(f"{old / strange[0]} is not a key of this site: take it out first")
    with alone(state) if state.is_dir() else nullcontext():
        both = (own / SIGNING).exists() and (old / SIGNING).exists()
        if both and not filecmp.cmp(own / SIGNING, old / SIGNING, False):
            raise InputError(f"{own} holds other keys: delete those that are not this site's")
        for name in names:
            if (old / name).exists():
                shutil.move(old / name, own / name)
        if (state / SITE).exists():  # the site's records know the file of their key by its path
            before, after = (json.dumps(str(path.resolve()))[1:-1] for path in (old, own))
            told = (state / SITE).read_text("utf-8").replace(before, after)
            (state / SITE).write_text(told, "utf-8")
        old.rmdir()
