"""Class names and their digest."""

import hashlib

from fedcal.core.naming import digest_of


def test_the_digest_is_of_the_names_in_their_order():
    digest = digest_of(["healthy", "disease"])
    assert digest == hashlib.sha256(b'["healthy", "disease"]').hexdigest()
    assert digest == digest_of(("healthy", "disease"))
    # a comma in a name is no second name
    others = (["disease", "healthy"], ["healthy"], ["healthy, disease"], ["healthy", "Disease"])
    assert digest not in {digest_of(names) for names in others}
