"""`from_arrays`: all checks of scores, labels and clients, and of the labels' names.

A wrong order of names is the worst error: every later number is plausible and false. So names are
matched, and never assumed to be in some order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedcal.core.checks import InputError, needed, one_of, same, unused
from fedcal.core.naming import class_names as checked_names
from fedcal.core.naming import plain_name, quoted
from fedcal.core.numerics import Integers, Kind
from fedcal.core.scores import check_scores, ids_of, own_names, per_row, places_of, words_among
from fedcal.datasets._dataset import Dataset


def from_arrays(
    *,
    logits: ArrayLike | None = None,
    probs: ArrayLike | None = None,
    labels: ArrayLike | None,
    client: ArrayLike | None = None,
    subject: ArrayLike | None = None,
    group: ArrayLike | None = None,
    other_logits: ArrayLike | None = None,
    other_probs: ArrayLike | None = None,
    test_logits: ArrayLike | None = None,
    test_probs: ArrayLike | None = None,
    test_labels: ArrayLike | None = None,
    test_client: ArrayLike | None = None,
    test_group: ArrayLike | None = None,
    name: str = "arrays",
    labels_required: bool = True,
    classes: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    positive: str | None = None,
) -> Dataset:
    """Check arrays and make a `Dataset` of them.

    Arrays are anything that `as_array` accepts: lists, pandas frames, torch tensors. Columns of
    frames of scores are put in the order of the classes, see `fedcal.core.scores.in_class_order`.

    Parameters
    ----------
    logits, probs
        (n, c), exactly one of the two; n >= 1, c >= 2, finite, and of the declared kind: see
        `fedcal.core.scores.check_scores`. For two classes the probabilities may be (n,) or (n, 1),
        of class 1.
    labels
        (n,) or (n, 1): integers in [0, c), of any numeric type, or the names of the classes (see
        `classes`, and `fedcal.core.scores.places_of` for names that are numbers). None only if
        `labels_required` is False (rows that are to be calibrated, not learnt from).
    client
        (n,) or (n, 1): integers or strings, numbered in sorted order; none may be missing, see
        `fedcal.core.scores.ids_of`.
    subject
        Like `client`: the subject of the row, for the unit of privacy of that name.
    group
        Like `client`: a group of rows that is evaluated by itself, such as a sex or a ward.
    other_logits, other_probs
        (n, c), at most one of the two: a second model's scores of the same rows.
    test_logits, test_probs, test_labels
        An optional test part of the same kind and number of classes.
    test_client
        Like `client`, for the test part: each client must also own rows of the fit part.
    test_group
        Like `group`, for the test part; it may have groups that the fit part lacks.
    classes
        (c,) names of the classes. They name the columns of scores in their order; columns that have
        these names already are brought into this order. None: the names that the columns have;
        without any, labels are numbers.
    class_names
        (c,) names of the columns of scores. None: the columns of a pandas frame, if they are names.
    positive
        for two classes, the class that becomes column 1, which recall, AUC and similar metrics are
        about. A single column of probabilities is taken to be of it only if labels are names.

    Returns
    -------
    Dataset
        Float64 C-contiguous input is not copied.

    Raises
    ------
    InputError
        One line that names the array and the first offending row; rows and columns count from 0.
    """
    kind, values = needed("logits or probs", _declared("", logits, probs), "they are calibrated")
    name = plain_name("name of the data", name)
    scores = check_scores(kind, kind, values, class_names)
    if labels_required:
        needed("labels", labels, "the scores are compared with them")
    single = np.ndim(values) == 1 or np.shape(values)[1:] == (1,)
    own = own_names(values) if class_names is None else class_names
    words = words_among([labels, test_labels])
    names = None
    if (known := classes if own is None else own) is not None:
        names = checked_names(known, scores.shape[1])
    if own is None and names is not None and set(names) == set(map(str, range(len(names)))):
        names = None  # the numbers of the columns: `in_order` puts them in place
    if names is None and words:
        if not (single and positive in words and len(words) == 2):
            raise InputError(
                f"labels are names ({quoted(words)}), and the columns of scores have none: name "
                "these by the classes (a file: prob_NAME or logit_NAME, or --class-names; arrays: "
                f"class_names=[...]), or give whole numbers in [0, {scores.shape[1] - 1}]"
            )
        names = tuple(sorted(words, key=positive.__eq__))
    checked = np.empty(0, np.int64)
    if labels is not None:
        checked = places_of("labels", labels, names, scores.shape, kind)
    rows = len(scores)
    owner, owners = (None, None) if client is None else _numbered("client", client, kind, rows)
    about = None if subject is None else _numbered("subject", subject, kind, rows)[0]
    groups, group_names = (None, None) if group is None else _numbered("group", group, kind, rows)
    other_kind, other = _declared("other_", other_logits, other_probs) or (None, None)
    if other_kind is not None:
        other = check_scores(f"other_{other_kind}", other_kind, other, names or ())
        same(f"shape of other_{other_kind}, as of {kind},", other.shape, scores.shape)
    data = Dataset(
        name,
        kind,
        scores,
        checked,
        owner,
        owners,
        subject=about,
        class_names=names,
        group=groups,
        group_names=group_names,
        other_scores=other,
        other_input=other_kind,
    )

    test = _declared("test_", test_logits, test_probs)
    of = f"test_{kind if test is None else test[0]}"
    for key, fit, tested in (("client", client, test_client), ("group", group, test_group)):
        if fit is None:
            unused(f"there is no {key}", **{f"test_{key}": tested})
    if test is None:
        given = {"labels": test_labels, "client": test_client, "group": test_group}
        unused(f"there is no test_{kind}", **{f"test_{key}": x for key, x in given.items()})
        return data.in_order(classes, positive)
    needed("test_labels", test_labels, f"{of} is given")
    same(f"kind of test scores, as of {kind},", test[0], kind)
    test_scores = check_scores(of, kind, test[1], names or ())
    same(f"number of classes of {of}, as of {kind},", test_scores.shape[1], data.classes)
    test_checked = places_of("test_labels", test_labels, names, test_scores.shape, of)
    data = replace(data, test_scores=test_scores, test_labels=test_checked)
    if test_client is not None and owners is not None:
        codes, theirs = _numbered("test_client", test_client, of, len(test_scores))
        place = {entry: k for k, entry in enumerate(owners)}
        for k in (k for k, entry in enumerate(theirs) if entry not in place):
            row = f"test_client at row {int(np.argmax(codes == k))}"
            one_of(row, theirs[k][:80], owners, "the fit part")
        at = np.array([place[entry] for entry in theirs], np.int64)
        data = replace(data, test_client=at[codes])
    if test_group is not None and group_names is not None:
        codes, theirs = _numbered("test_group", test_group, of, len(test_scores))
        known = list(dict.fromkeys([*group_names, *theirs]))
        at = np.array([known.index(entry) for entry in theirs], np.int64)
        data = replace(data, test_group=at[codes], group_names=tuple(known))
    return data.in_order(classes, positive)


def from_columns(columns: Mapping[str, Any], **options: Any) -> Dataset:
    """Return `from_arrays` of a reader's columns, with the order of the source in `given`."""
    arrays = {key: value for key, value in columns.items() if key != "given"}
    return replace(from_arrays(**arrays, **options), given=columns.get("given"))


def _declared(prefix: str, logits: Any, probs: Any) -> tuple[Kind, Any] | None:
    """Return the declared kind of scores and the scores; None if there are none."""
    if logits is not None:
        unused(f"{prefix}logits are given", **{f"{prefix}probs": probs})
        return "logits", logits
    return None if probs is None else ("probs", probs)


def _numbered(name: str, value: Any, of: str, rows: int) -> tuple[Integers, tuple[str, ...]]:
    """Return ids as numbers from 0, and their names."""
    names, owner = np.unique(per_row(name, ids_of(name, value), of, rows), return_inverse=True)
    return owner.astype(np.int64), tuple(map(str, names.tolist()))
