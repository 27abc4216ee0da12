"""The rows of one site: features with labels, which a network is trained on, or scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcal.core.errors import InputError
from fedcal.core.shards import Shards
from fedcal.experiments.deploy.rows import SiteRows, of_scores, only_client, read_rows
from fedcal.experiments.training.features import features_of
from fedcal.experiments.training.rows import LabelledRows, named
from fedcal.storage.atomic import path_of
from fedcal.storage.npz import read_npz
from fedcal.training.network import need_torch, text_of


def site_rows(data: str, names: Sequence[str] | None, csv: str | None = None) -> SiteRows:
    """Return the rows of one site: features to train on, or scores of a model.

    Raises InputError as `read_rows` and `read_features`.

    Parameters
    ----------
    data, names, csv
        as `read_rows` takes them, or a file of features (`fedcal train --data`)
    """
    features = read_features(data, names)
    return of_scores(read_rows(data, names, csv=csv), names) if features is None else features


def read_features(data: str, names: Sequence[str] | None) -> SiteRows | None:
    """Return the rows of one site from a file of features, or None for another file.

    How many classes there are must be said, by `names` or by the array `class_names`: the server
    hears of it, and the largest label at a site would tell of its rows.

    Raises InputError if the file cannot be used, the rows belong to several clients, or training
    has not been installed.
    """
    path = path_of(data)
    if path.suffix.lower() != ".npz" or not path.is_file():
        return None
    with named(data):
        arrays = read_npz(path)
        if "features" not in arrays:
            return None
        need_torch()
        own = tuple(map(str, arrays["class_names"].flat)) if "class_names" in arrays else None
        if names is None and own is None:
            raise InputError(
                "features do not contain the number of classes: give --class-names, the same at "
                "all sites, or the array class_names"
            )
        if names is not None and own not in (None, tuple(names)):
            raise InputError(f"its classes are {', '.join(own or ())}, and --class-names differ")
        rows = features_of(arrays | {"class_names": np.array(own or tuple(names or ()))})
    only_client(data, 1 if rows.client is None else len(np.unique(rows.client)))
    return _site_rows(path.name, rows)


def _site_rows(name: str, rows: LabelledRows) -> SiteRows:
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
        name=name,
        kind=f"{text_of(rows.x.shape[1:])} features to train on",
        counts=f"{n:,} rows{subjects}",
        more=more,
        shards=shards,
        names=rows.names or (),
        test=None if test is None else (np.zeros((len(test.y), rows.classes)), test.y),
        test_inputs=None if test is None else test.x,
    )
