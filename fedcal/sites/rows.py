"""The rows of one site, and whether it has answered from the same rows before.

Kept in the site's own folder are digests of the rows by a key of its own, which lies with them:
without it they say nothing of a row. Neither leaves the site.
"""

import datetime
import hashlib
import hmac
import json
import math
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedcal import datasets
from fedcal.core import checks
from fedcal.core.naming import listed
from fedcal.core.shards import Shards
from fedcal.datasets import Dataset, plausible_rows
from fedcal.datasets.site_csv import AS_IT_IS, Reading, read_site_csv
from fedcal.results.page import read_json
from fedcal.storage import atomic
from fedcal.storage.atomic import write_file

FILE = "earlier-rows.json"
_HASHES = 256
_TENTHS = {5: "half", 6: "six tenths", 7: "seven tenths", 8: "eight tenths", 9: "nine tenths"}
_TENTHS |= {10: "almost all"}


def compared(own: Path, shards: Shards, ids: Sequence[str], answered: Sequence[float]) -> list[str]:
    """Remember a site's rows, and say which earlier ones they are the same as.

    Parameters
    ----------
    own
        the site's own folder
    shards
        its rows
    ids
        their subjects as the site names them, or nothing
    answered
        when the site has answered requests, seconds since 1970

    Returns
    -------
    list of str
        nothing, or a warning: of those it has answered from, half or more are the same
    """
    path = own / FILE
    kept: Any = read_json(path) if path.exists() else {"key": secrets.token_hex(32), "rows": []}
    key, rows = bytes.fromhex(kept["key"]), kept["rows"]
    ends = [*(one["since"] for one in rows[1:]), math.inf]
    for one, end in zip(rows, ends, strict=False):
        asked = [when for when in answered if one["since"] <= when < end]
        one["answered"] = max([one["answered"], *asked])
    now = {"since": time.time(), "answered": 0.0, **sketch(key, shards, ids)}
    if rows and rows[-1]["digest"] == now["digest"]:
        now = rows.pop()
    rows = [one for one in [*rows, now] if one["answered"] or one is now]
    write_file(path, json.dumps({"schema": 1, "key": kept["key"], "rows": rows}))
    path.chmod(0o600)
    found = [(_same(now, one), one["answered"]) for one in rows if one["answered"]]
    share, when = max(found, default=(0.0, 0.0))
    if (tenths := round(10 * share)) < min(_TENTHS):
        return []
    day = datetime.datetime.fromtimestamp(when, datetime.UTC).date()
    of = f"{day.year}Q{(day.month + 2) // 3}, answered on {day}"
    if share > 1:
        return [f"warning: the same rows as in {of}"]
    return [f"warning: {_TENTHS[tenths]} of the rows are the same as in {of}"]


def sketch(key: bytes, shards: Shards, ids: Sequence[str]) -> dict[str, Any]:
    """Return a keyed digest of rows in any order, their number, and a keyed MinHash of the set.

    There is no MinHash of few values in many rows: other patients have these, too.
    """
    table = np.column_stack([shards.logits, shards.labels])
    texts = [f"{name}\0" for name in ids] or [""] * len(table)
    if shards.groups is not None:
        names = np.array(shards.group_names)[shards.groups]
        texts = [text + name for text, name in zip(texts, names, strict=True)]
    rows = sorted(row.tobytes() + text.encode() for row, text in zip(table, texts, strict=True))
    text = b"".join(len(row).to_bytes(4) + row for row in rows)
    digest, once = hmac.digest(key, text, "sha256").hex(), sorted(set(rows))
    made: dict[str, Any] = {"digest": digest, "rows": len(once), "least": []}
    if 2 * len(once) > len(rows):
        short = [hashlib.blake2b(row, digest_size=8, key=key).digest() for row in once]
        x = np.frombuffer(b"".join(short), np.uint64)
        draw = np.random.default_rng(int.from_bytes(key))
        odd = draw.integers(0, 2**63, (_HASHES, 2), np.uint64) * np.uint64(2) + np.uint64(1)
        made["least"] = [int((a * x + b).min()) for a, b in odd]
    return made


def _same(now: dict[str, Any], then: dict[str, Any]) -> float:
    """Return about which share of the rows were there then; 2 = they are the same."""
    if hmac.compare_digest(now["digest"], then["digest"]):
        return 2.0
    if not (now["least"] and then["least"]):
        return 0.0
    alike = float(np.mean(np.equal(now["least"], then["least"])))
    both = alike / (1 + alike) * (now["rows"] + then["rows"])
    return float(min(both / now["rows"], 1.0))


def read_rows(
    data: str, names: Sequence[str] | None, reading: Reading = AS_IT_IS, most: float = 1.0
) -> tuple[Dataset, list[str]]:
    """Return the rows of one site, and what was done with the lines of its file, in sentences.

    Raises InputError if they cannot be had or have no labels.

    Parameters
    ----------
    data
        a file as `fedcal simulate` takes it
    names
        of the classes, for labels that are names
    reading, most
        how a CSV file is read, and the largest share of its lines that may be left out
    """
    path = atomic.path_of(data)
    is_csv = path.is_file() and path.name.lower().endswith(".csv")
    if not is_csv and reading != AS_IT_IS:
        raise checks.InputError(f"--map, --labels and --drop-missing are for CSV files, not {data}")
    notes: list[str] = []
    if is_csv:
        with checks.located(repr(data)):
            rows, notes = read_site_csv(path, names, reading, most)
    else:
        rows = datasets.load(data, classes=names, labels_required=False)
    checks.needed(f"labels of {data}", rows.labelled or None, "scores are compared with them")
    return rows, notes


def shards_of(rows: Dataset) -> Shards:
    """Return all rows of a site as those of one client; InputError if they are of several."""
    what = f"number of clients in {rows.name} (give each site a file of its own)"
    checks.same(what, len(rows.client_names or "1"), 1)
    return rows.shards(np.zeros(len(rows.labels), np.int64), 1)


@dataclass(frozen=True)
class SiteRows:
    """Rows of a site, ready to answer questions.

    `rows` are as they were read, `shards` are those of one client, and `names` those of the
    classes. `notes`, on what was done with the lines of the file, are for the site's own eyes, and
    `plural` is the word for subjects there.
    """

    rows: Dataset
    shards: Shards
    names: tuple[str, ...]
    notes: Sequence[str] = ()
    plural: str = "subjects"

    @property
    def ids(self) -> list[str]:
        """Each row's subject as the site's file has it; [] if there are none."""
        given = self.rows.given
        if given is None or "subject" not in given.ids:
            return []
        names = given.ids["subject"] if given.order is None else given.ids["subject"][given.order]
        return list(map(str, names[: len(self.shards.labels)]))

    @property
    def counts(self) -> str:
        """Numbers of rows and subjects, for the site's own terminal."""
        subjects = self.shards.subjects
        of = "" if subjects is None else f" of {len(np.unique(subjects)):,} {self.plural}"
        return f"{len(self.shards.labels):,} rows{of}"

    def described(self) -> str:
        """One line, for the site's own terminal and for nothing else."""
        rows, names = self.rows, self.names
        what = f"{len(names)} classes ({listed(names, most=10)}), {rows.input}"
        groups = "" if rows.group_names is None else f", {len(rows.group_names)} groups"
        return f"{rows.name}: {self.counts}, {what}{groups}"

    def doubts(self) -> list[str]:
        """Return probable mistakes in the rows, a line each: for the site's own terminal alone.

        Raises InputError where the classes are in another order than the columns.
        """
        if self.shards.inputs is not None:  # features have no scores yet
            return []
        rows = self.shards.logits, self.shards.labels
        findings = plausible_rows.doubts_of(self.rows.name, *rows, self.names)
        return [f"warning: {finding}" for finding in findings]
