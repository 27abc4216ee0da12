"""Class names and their digest."""

import hashlib

from refusals import each_is_refused

from fedcal.core.classes import class_names, digest_of


def test_the_digest_is_of_the_names_in_their_order():
    digest = digest_of(["healthy", "disease"])
    assert digest == hashlib.sha256(b'["healthy", "disease"]').hexdigest()
    assert digest == digest_of(("healthy", "disease"))
    # a comma in a name is no second name
    others = (["disease", "healthy"], ["healthy"], ["healthy, disease"], ["healthy", "Disease"])
    assert digest not in {digest_of(names) for names in others}


def test_names_are_one_for_each_class():
    assert class_names(None, 3) == ("0", "1", "2")
    assert class_names(["a", "b"], 2) == ("a", "b")
    wrong = (["a"], ["a", "b", "c"], ["a", "a"], ["a", " "])
    each_is_refused(
        [(names, "class names") for names in wrong], lambda names: class_names(names, 2)
    )
