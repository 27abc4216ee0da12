"""The rows of one site, as it gives them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedcal import datasets
from fedcal.core import checks, imports, numerics
from fedcal.core.naming import first_names
from fedcal.core.shards import Shards
from fedcal.datasets import Dataset, plausible_rows
from fedcal.datasets.site_csv import AS_IT_IS, SUFFIXES, Reading, read_site_csv
from fedcal.storage import atomic

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def read_rows(
    data: str,
    names: Sequence[str] | None,
    reading: Reading = AS_IT_IS,
    most: float = 1.0,
    *,
    alone: bool = True,
) -> tuple[Dataset, list[str]]:
    """Return the rows of one site, and what was done with the lines of its file, in sentences.

    Raises InputError if they cannot be had, have no labels, or belong to several clients; not
    `alone` they may.

    Parameters
    ----------
    data
        a file as `fedcal simulate` takes it, or module:function, found from the working folder
        on, which returns logits (n, c) and labels (n,), or a mapping with the keys of a file
    names
        of the classes, for labels that are names
    reading, most
        how a CSV file is read, and the largest share of its lines that may be left out
    """
    path = atomic.path_of(data)
    is_csv = path.is_file() and path.name.lower().endswith(SUFFIXES)
    if not is_csv and reading != AS_IT_IS:
        raise checks.InputError(f"--map, --labels and --drop-missing are for CSV files, not {data}")
    told: list[str] = []
    if is_csv:
        with checks.located(repr(data)):
            rows, told = read_site_csv(path, names, reading, most)
    elif _FUNCTION.fullmatch(data) and not path.exists():
        rows = _called(data, names)
    else:
        rows = datasets.load(data, classes=names, labels_required=False)
    checks.needed(f"labels of {data}", rows.labelled or None, "scores are compared with them")
    if alone:
        what = f"number of clients in {data} (give each site a file of its own)"
        checks.same(what, len(rows.client_names or "1"), 1)
    return rows, told


def _called(data: str, names: Sequence[str] | None) -> Dataset:
    function = imports.named("--data", data)
    try:
        made = function()
    except Exception as e:  # noqa: BLE001  it is the site's own code
        raise checks.InputError(f"--data {data} failed: {type(e).__name__}: {e}") from None
    if isinstance(made, tuple) and len(made) == 2:
        made = {"logits": made[0], "labels": made[1]}
    if not isinstance(made, Mapping) or not {"labels"} <= set(made) <= set(datasets.KEYS):
        raise checks.InputError(
            f"--data {data} must return (logits, labels), or a mapping with keys among "
            f"{', '.join(datasets.KEYS)}"
        )
    return datasets.from_arrays(**made, name=data, classes=names)


def shards_of(rows: Dataset) -> Shards:
    """All rows of the site as those of one client."""
    return rows.shards(np.zeros(len(rows.labels), np.int64), 1)


@dataclass(frozen=True)
class SiteRows:
    """Rows of a site, ready to answer questions.

    `rows` are as they were read, `shards` are those of one client, and `names` those of the
    classes. `notes`, on what was done with the lines of the file, are for the site's own eyes, and
    `who` is the word for subjects there.
    """

    rows: Dataset
    shards: Shards
    names: tuple[str, ...]
    notes: Sequence[str] = ()
    who: str = "subjects"

    @property
    def test(self) -> tuple[numerics.Floats, numerics.Integers] | None:
        """Scores and labels of the part test, as `fedcal.clients.site.prepared.prepare` takes them.

        None = there are none.
        """
        scores, labels = self.rows.test_logits, self.rows.test_labels
        return None if scores is None or labels is None else (scores, labels)

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
        """How many rows and subjects there are: for the site's own terminal."""
        who = self.shards.subjects
        of = "" if who is None else f" of {len(np.unique(who)):,} {self.who}"
        return f"{len(self.shards.labels):,} rows{of}"

    def described(self, *, counts: bool = True) -> str:
        """One line; with `counts` for the site's own terminal and for nothing else."""
        rows, names = self.rows, self.names
        what = f"{len(names)} classes ({first_names(names)}), {rows.input}"
        if not counts:
            return f"{rows.name}: {what}"
        groups = "" if rows.group_names is None else f", {len(rows.group_names)} groups"
        tested = "" if rows.test_labels is None else f", {len(rows.test_labels):,} test rows"
        return f"{rows.name}: {self.counts}, {what}{groups}{tested}"

    def doubts(self) -> list[str]:
        """Return probable mistakes in the rows, a line each: for the site's own terminal alone.

        Raises InputError where the classes are in another order than the columns.
        """
        if self.shards.inputs is not None:  # features have no scores yet
            return []
        parts = {"": (self.shards.logits, self.shards.labels), "test rows: ": self.test}
        return [
            f"warning: {part}{finding}"
            for part, rows in parts.items()
            if rows is not None and len(rows[1])
            for finding in plausible_rows.doubts_of(f"{part}{self.rows.name}", *rows, self.names)
        ]
