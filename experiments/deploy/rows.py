"""The rows of one site, as it gives them."""

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal import datasets
from fedcal.core import checks, errors, optional, types
from fedcal.core.classes import first_names
from fedcal.core.shards import Shards
from fedcal.datasets import Dataset, plausible_rows
from fedcal.datasets.site_csv import SUFFIXES, Reading, read_site_csv
from fedcal.experiments.training.data import labelled_rows
from fedcal.storage import atomic, npz
from fedcal.training.networks import need_torch, text_of

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def read_rows(
    data: str,
    names: Sequence[str] | None,
    reading: Reading | None = None,
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
    try:
        with warnings.catch_warnings():
            # in sorted order they may be other columns than at another site
            warnings.filterwarnings("error", "labels are names")
            rows, told = _read(data, names, reading, most)
    except UserWarning:
        raise errors.InputError(
            f"the labels of {data} are names: give --class-names, in the order of the columns"
        ) from None
    checks.needed(f"labels of {data}", rows.labelled or None, "scores are compared with them")
    only_client(data, len(rows.client_names or ()) if alone else 1)
    return rows, told


def _read(
    data: str, names: Sequence[str] | None, reading: Reading | None, most: float
) -> tuple[Dataset, list[str]]:
    path = atomic.path_of(data)
    if path.is_file() and path.name.lower().endswith(SUFFIXES):
        with errors.located(repr(data)):
            return read_site_csv(path, names, reading or Reading(), most)
    if reading not in (None, Reading()):
        raise errors.InputError(f"--map, --labels and --drop-missing are for CSV files, not {data}")
    if _FUNCTION.fullmatch(data) and not path.exists():
        return _called(data, names), []
    return datasets.load(data, classes=names, labels_required=False), []


def only_client(data: str, clients: int) -> None:
    """Refuse rows that belong to several clients."""
    checks.same(f"number of clients in {data} (give each site a file of its own)", clients or 1, 1)


def _called(data: str, names: Sequence[str] | None) -> Dataset:
    function = optional.named("--data", data)
    try:
        made = function()
    except Exception as e:  # noqa: BLE001  it is the site's own code
        raise errors.InputError(f"--data {data} failed: {type(e).__name__}: {e}") from None
    if isinstance(made, tuple) and len(made) == 2:
        made = {"logits": made[0], "labels": made[1]}
    if not isinstance(made, Mapping) or not {"labels"} <= set(made) <= set(datasets.KEYS):
        raise errors.InputError(
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

<<<<<<< HEAD
    Attributes
    ----------
    name, kind
        of the data, in words
    counts, more
        how many rows, and what else there is: for the site's own terminal
    shards
        of one client
    names
        of the classes
    test, test_inputs
        as `fedcal.clients.site.prepared.prepare` takes them
    ids
        of each row's subject, as the file has it
    notes
        what was done with the lines of the file: for the site's own eyes
=======
    `rows` are as they were read, `shards` are those of one client, and `names` those of the
    classes. `notes`, on what was done with the lines of the file, are for the site's own eyes, and
    `who` is the word for subjects there.
>>>>>>> rows
    """

    rows: Dataset
    shards: Shards
    names: tuple[str, ...]
<<<<<<< HEAD
    test: tuple[types.Floats, types.Integers] | None
    test_inputs: NDArray[Any] | None = None
    ids: Sequence[str] = ()
=======
>>>>>>> rows
    notes: Sequence[str] = ()
    who: str = "subjects"

    @property
    def test(self) -> tuple[types.Floats, types.Integers] | None:
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
        parts = {"": (self.shards.logits, self.shards.labels), "test rows: ": self.test}
        return [
            f"warning: {part}{finding}"
            for part, rows in parts.items()
            if rows is not None and len(rows[1])
            for finding in plausible_rows.doubts_of(f"{part}{self.rows.name}", *rows, self.names)
        ]
<<<<<<< HEAD


def of_scores(rows: Dataset, names: Sequence[str] | None, notes: Sequence[str] = ()) -> SiteRows:
    """Return a site with scores of a model."""
    test = None
    if rows.test_logits is not None and rows.test_labels is not None:
        test = (rows.test_logits, rows.test_labels)
    subjects = "" if rows.subject is None else f" of {len(np.unique(rows.subject)):,} subjects"
    groups = "" if rows.group_names is None else f", {len(rows.group_names)} groups"
    note = "" if rows.other_scores is None else ", scores of a second model"
    tested = "" if rows.test_labels is None else f", {len(rows.test_labels):,} test rows"
    return SiteRows(
        name=rows.name,
        kind=rows.input,
        counts=f"{len(rows.labels):,} rows{subjects}",
        more=f"{groups}{note}{tested}",
        shards=shards_of(rows),
        names=class_names(rows.class_names if names is None else names, rows.classes),
        test=test,
        ids=_subjects(rows),
        notes=notes,
    )


def _subjects(rows: Dataset) -> list[str]:
    """Return each row's subject as the site's file has it; [] if there are none."""
    if rows.given is None or "subject" not in rows.given.ids:
        return []
    names, order = rows.given.ids["subject"], rows.given.order
    return [str(name) for name in (names if order is None else names[order])[: len(rows.labels)]]


def site_rows(data: str, names: Sequence[str] | None) -> SiteRows:
    """Return the rows of one site: features to train on, or scores of a model.

    Raises InputError as `read_rows` and `read_features`.

    Parameters
    ----------
    data, names
        as `read_rows` takes them, or a file of features (`fedcal train --data`)
    """
    features = read_features(data, names)
    return of_scores(read_rows(data, names)[0], names) if features is None else features


def read_features(data: str, names: Sequence[str] | None) -> SiteRows | None:
    """Return the rows of one site from a file of features, or None for another file.

    How many classes there are must be said, by `names` or by the array `class_names`: the server
    hears of it, and the largest label at a site would tell of its rows.

    Raises InputError if the file cannot be used, the rows belong to several clients, or training
    has not been installed.
    """
    path = atomic.path_of(data)
    if path.suffix.lower() != ".npz" or not path.is_file():
        return None
    with errors.located(repr(data)):
        arrays = npz.read_npz(path)
        if "features" not in arrays:
            return None
        need_torch()
        own = tuple(map(str, arrays["class_names"].flat)) if "class_names" in arrays else None
        if names is None and own is None:
            raise errors.InputError(
                "features do not contain the number of classes: give --class-names, the same at "
                "all sites, or the array class_names"
            )
        if names is not None and own is not None:
            checks.same("classes of --class-names", tuple(names), own)
        rows = labelled_rows(arrays | {"class_names": np.array(own or tuple(names or ()))})
    only_client(data, 1 if rows.client is None else len(np.unique(rows.client)))
    n, test = len(rows.y), rows.test
    shards = Shards.from_owner(
        np.zeros((n, rows.classes)),
        rows.y,
        np.zeros(n, np.int64),
        1,
        subjects=rows.subject,
        groups=rows.group,
        group_names=rows.group_names,
        inputs=rows.x,
    )
    subjects = "" if rows.subject is None else f" of {len(np.unique(rows.subject)):,} subjects"
    more = "" if test is None else f", {len(test.y)} test rows"
    return SiteRows(
        name=path.name,
        kind=f"{text_of(rows.x.shape[1:])} features to train on",
        counts=f"{n:,} rows{subjects}",
        more=more,
        shards=shards,
        names=rows.names or (),
        test=None if test is None else (np.zeros((len(test.y), rows.classes)), test.y),
        test_inputs=None if test is None else test.x,
    )
=======
>>>>>>> rows
