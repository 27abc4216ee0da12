"""How much of fedcal a site has to trust: what its process loads to answer, and what guards it."""

from loaded import guard, lines, loaded

MOST_LINES, MOST_OF_THE_GUARD = 10_200, 2_500
ELSEWHERE = (
    *("strategies", "evaluation", "conformal", "personal", "training", "calibrators"),
    *("datasets", "partition", "experiments", "accounting"),
)
"""What makes questions, accounts for them and reads what was learned: a site's process never."""


def test_a_site_that_has_answered_has_loaded_little(tmp_path):
    found, heavy = loaded(tmp_path)
    assert not [name for name in found if name.split(".")[1:2] and name.split(".")[1] in ELSEWHERE]
    assert heavy == []
    asked = {name for name in found if name.startswith("fedcal.clients.questions.")}
    assert asked == {"fedcal.clients.questions.scores"}  # of its kind alone
    assert sum(map(lines, found.values())) <= MOST_LINES


def test_the_guard_is_short():
    assert sum(guard().values()) <= MOST_OF_THE_GUARD
