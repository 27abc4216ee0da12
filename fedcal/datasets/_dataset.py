"""The class `Dataset` of scores and labels."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import InputError, integer, one_of, same
from fedcal.core.naming import class_names, key_of, plain_name
from fedcal.core.numerics import Floats, Integers, Kind, Purpose, logits_of, softmax, stream
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards

IDS = ("client", "subject", "group")
"""Owner, subject and group of a row."""

KEYS = (
    *("logits", "probs", "labels"),
    *IDS,
    *("other_logits", "other_probs"),
    *("test_logits", "test_probs", "test_labels", "test_client", "test_group"),
    "class_names",
)
"""Arrays of a data file, and arguments of `from_arrays`."""


def by_name(data: Any, first: str, keys: Collection[str] | None = None) -> dict[str, Any]:
    """Return rows in memory by name: a pair of the array `first` and labels, or a mapping.

    InputError for anything else, and for names that are not among `keys` if these are given.
    """
    if isinstance(data, (tuple, list)) and len(data) == 2:
        return dict(zip((first, "labels"), data, strict=True))
    if not isinstance(data, Mapping):
        frame = ", a data frame" * (first == "logits")
        raise InputError(
            f"data in Python must be ({first}, labels){frame}, or a mapping with the keys {first} "
            f"and labels; got {type(data).__name__}"
        )
    for key in data if keys is not None else ():
        one_of("key", str(key)[:80], keys or ())
    return dict(data)


_PER_ROW = ("scores", "labels", *IDS, "other_scores")
_TESTED = ("scores", "labels", "client", "group")


@dataclass(frozen=True, eq=False)
class Given:
    """All rows in the order of their source, fit and test part together.

    Attributes
    ----------
    ids
        Those of `IDS` that every row has, (n + m,) each, as in the source.
    order
        (n + m,) position in the source of each row, fit part first; None = the same order.
    """

    ids: Mapping[str, NDArray[Any]]
    order: Integers | None = None


@dataclass(repr=False, frozen=True, eq=False)
class Dataset:
    """Scores of a classifier on labelled rows; made by `load` or `from_arrays`, which check.

    Attributes
    ----------
    name
        Name of the set in reports.
    input
        Kind of `scores`, "logits" or "probs", as declared by the caller.
    scores
        (n, c) float64, C-contiguous, as in the source (negative rounding errors of probabilities
        are set to 0; rows are not renormalised).
    labels
        (n,) int64 in [0, c); of length 0 if the rows are unlabelled.
    client
        (n,) int64 in [0, K): the natural client that owns the row, or None. After a split a client
        may own no row of the fit part; the numbering stays.
    client_names
        The K names of the natural clients in the order of their numbers, or None.
    test_scores, test_labels
        The test part, (m, c) and (m,), or None for both.
    subject
        (n,) int64 >= 0: the subject of the row at its client, such as a patient, or None. The
        numbers identify subjects and have no other meaning.
    test_client
        (m,) int64 in [0, K): the natural client of each test row, or None.
    class_names
        Names of the classes, in the order of the columns, or None if they have numbers.
    group, test_group
        (n,) and (m,) int64 in [0, G): the group of each row, such as a sex or a ward, or None.
    group_names
        The G names of the groups in the order of their numbers, or None.
    other_scores
        (n, c) a second model's scores of the rows, to be compared with the first, or None. The test
        part has none.
    other_input
        Kind of `other_scores`, "logits" or "probs", or None.
    given
        Order of the rows in the source, if labels may be missing: such rows are returned in it.
    """

    name: str
    input: Kind
    scores: Floats
    labels: Integers
    client: Integers | None = None
    client_names: tuple[str, ...] | None = None
    test_scores: Floats | None = None
    test_labels: Integers | None = None
    subject: Integers | None = None
    test_client: Integers | None = None
    class_names: tuple[str, ...] | None = None
    group: Integers | None = None
    group_names: tuple[str, ...] | None = None
    test_group: Integers | None = None
    other_scores: Floats | None = None
    other_input: Kind | None = None
    given: Given | None = None

    def __repr__(self) -> str:
        tests = "" if self.test_labels is None else f", {len(self.test_labels):,} test rows"
        own = "" if self.client is None else f"; {len(set(self.client.tolist())):,} natural clients"
        rows = f"{len(self.labels):,} rows{tests}{own}"
        return f"<data {self.name}: {self.input} of {self.classes} classes;\n {rows}>"

    @property
    def classes(self) -> int:
        """Number of classes, c; at least 2."""
        return int(self.scores.shape[1])

    @property
    def labelled(self) -> bool:
        """Condition that the rows have labels."""
        return len(self.labels) == len(self.scores)

    @cached_property
    def logits(self) -> Floats:
        """Scores as logits, (n, c): themselves, or log(max(p, 1e-12))."""
        return logits_of(self.input, self.scores)

    @cached_property
    def test_logits(self) -> Floats | None:
        """Scores of the test part as `logits`, (m, c), or None."""
        return None if self.test_scores is None else logits_of(self.input, self.test_scores)

    @cached_property
    def other_logits(self) -> Floats | None:
        """Scores of the second model as `logits`, (n, c), or None.

        If the first model has probabilities they are logarithms of probabilities.
        """
        if self.other_scores is None or self.other_input is None:
            return None
        if (self.input, self.other_input) == ("probs", "logits"):
            return logits_of("probs", softmax(self.other_scores))
        return logits_of(self.other_input, self.other_scores)

    @cached_property
    def probs(self) -> Floats:
        """Probabilities before any calibration, (n, c): the scores or softmax(logits)."""
        return self.scores if self.input == "probs" else softmax(self.scores)

    @cached_property
    def test_probs(self) -> Floats | None:
        """Probabilities of the test part as `probs`, (m, c), or None."""
        if self.test_scores is None or self.input == "probs":
            return self.test_scores
        return softmax(self.test_scores)

    def in_order(self, names: Sequence[str] | None, positive: str | None = None) -> Dataset:
        """Return the same rows with the columns of scores, and the labels, in another order.

        Parameters
        ----------
        names
            (c,) of the classes in the order to return; None = as it is
        positive
            for two classes, the class that comes last; None = in the order of `names`

        Raises
        ------
        InputError
            The classes have other names, or there are not two for `positive`.
        """
        own = class_names(self.class_names, self.classes)
        ordered = own if names is None else class_names(names, self.classes)
        if names is not None and self.class_names is None and set(ordered) != set(own):
            return replace(self, class_names=ordered).in_order(None, positive)
        keys, asked = list(map(key_of, own)), list(map(key_of, ordered))
        if set(asked) != set(keys):
            raise InputError(
                f"its columns are for the classes {', '.join(own)[:200]}, not "
                f"{', '.join(ordered)[:200]}"
            )
        if positive is not None:
            same(f"number of classes, with {positive:.80} as the positive one,", self.classes, 2)
            positive = one_of("positive class", plain_name("positive", positive), ordered)
            ordered = tuple(sorted(ordered, key=positive.__eq__))
            asked = list(map(key_of, ordered))
        if ordered == own:
            return self
        order = [keys.index(key) for key in asked]
        place = np.argsort(order)

        def moved(scores: Floats | None) -> Any:
            return None if scores is None else np.ascontiguousarray(scores[:, order])

        return replace(
            self,
            class_names=ordered,
            scores=moved(self.scores),
            test_scores=moved(self.test_scores),
            other_scores=moved(self.other_scores),
            labels=place[self.labels],
            test_labels=None if self.test_labels is None else place[self.test_labels],
        )

    def _with_labels(self, least: int) -> int:
        rows = len(self.scores) if self.labelled else 0
        return integer(f"the number of rows with labels in {self.name}", rows, least)

    def split(self, seed: int) -> Dataset:
        """Return a data set that has a test part.

        It is the data set itself if it has one; otherwise floor(n/2) rows, drawn without
        replacement by `seed`, become the test part. Both parts keep the order of the rows. A
        subject's rows may be in both.

        Raises InputError for unlabelled rows, fewer than two rows, or a seed out of range.
        """
        if self.test_scores is not None:
            return self
        rows = self._with_labels(2)
        held_out = np.zeros(rows, np.bool_)
        held_out[stream(seed, Purpose.SPLIT).permutation(rows)[: rows // 2]] = True
        columns = {k: x for k in _PER_ROW if (x := getattr(self, k)) is not None}
        return replace(
            self,
            **{k: x[~held_out] for k, x in columns.items()},
            **{f"test_{k}": columns[k][held_out] for k in _TESTED if k in columns},
        )

    def evaluated(self) -> Dataset:
        """Return the rows of an evaluation: the test part only, or all rows if there is none.

        Scores of a second model, and subjects, exist only for the fit part: with them, its rows are
        used.

        Raises InputError for unlabelled rows.
        """
        more = self.other_scores is not None or self.subject is not None
        if self.test_scores is None or self.test_labels is None or more:
            self._with_labels(1)
            return self
        moved: dict[str, Any] = {k: getattr(self, f"test_{k}") for k in _TESTED}
        moved |= dict.fromkeys((f"test_{k}" for k in _TESTED), None)
        return replace(
            self,
            **moved,
            client_names=None if self.test_client is None else self.client_names,
            group_names=None if self.test_group is None else self.group_names,
        )

    def read_by(self, method: str, seed: int) -> Dataset:
        """Return the rows for a method's clients: `evaluated` if it evaluates, else `split`.

        Every engine, and every site of a simulation, decides this by the name: names of methods
        that evaluate, and no others, begin with "evaluate".
        """
        return self.evaluated() if method.startswith("evaluate") else self.split(seed)

    def shards(self, owner: Integers, clients: int) -> Shards:
        """Return the rows of the fit part by client.

        Raises InputError as `rows_by_owner`.

        Parameters
        ----------
        owner
            (n,) client of each row, in [0, clients)
        """
        return rows_by_owner(
            self.logits,
            self.labels,
            owner,
            clients,
            self.input,
            self.subject,
            groups=self.group,
            group_names=self.group_names or (),
            other=self.other_logits,
        )
