"""Class names and their digest."""

import hashlib

import pytest

from fedcal.classes import class_names, digest_of, names_in
from fedcal.errors import InputError


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
    for wrong in (["a"], ["a", "b", "c"], ["a", "a"], ["a", " "]):
        with pytest.raises(InputError, match="class names"):
            class_names(wrong, 2)


def test_a_command_line_has_names_by_comma():
    assert names_in("healthy, disease") == names_in("healthy,disease") == ("healthy", "disease")
    for wrong in ("a,,b", "a,a", ""):
        with pytest.raises(InputError, match="class names"):
            names_in(wrong)
