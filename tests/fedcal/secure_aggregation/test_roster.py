"""Rosters: their canonical form, their file, and what is refused."""

import json
from dataclasses import replace
from typing import Any

from refusals import each_is_refused

from fedcal.core.naming import digest_of
from fedcal.secure_aggregation.keys import SigningKey
from fedcal.secure_aggregation.roster import Committee, Member, Roster

KEYS = [SigningKey(bytes([n]) * 32) for n in range(9)]
SITES = tuple(Member(f"site {n}", key.public) for n, key in enumerate(KEYS[:5]))
ROSTER = Roster("hearts", SITES, Committee((0, 1, 3), 2), digest_of(["healthy", "disease"]))


def read(**changed: Any) -> Roster:
    """Read the text of the roster with other entries."""
    fields = json.loads(ROSTER.to_text()) | changed
    return Roster.from_text(json.dumps(fields, sort_keys=True, separators=(",", ":")))


def test_each_part_moves_the_digest():
    changed = [
        replace(ROSTER, name="lungs"),
        replace(ROSTER, sites=SITES[:4]),
        replace(ROSTER, sites=(SITES[1], SITES[0], *SITES[2:])),
        replace(ROSTER, sites=(replace(SITES[0], name='Zürich "\\n#='), *SITES[1:])),
        replace(ROSTER, sites=(replace(SITES[0], key=KEYS[8].public), *SITES[1:])),
        replace(ROSTER, committee=Committee((0, 1, 2), 2)),
        replace(ROSTER, committee=Committee((0, 1, 3), 3)),
        replace(ROSTER, class_digest=""),
    ]
    for roster in (ROSTER, *changed):
        text = roster.to_text()
        assert text.isascii()
        assert Roster.from_text(text) == roster
        assert Roster.from_text(text).to_text() == text
    assert len({ROSTER.digest, *(roster.digest for roster in changed)}) == len(changed) + 1
    # sites pin it for years: another digest for the same file is another protocol
    assert ROSTER.digest == "62fcb8188b3cca7f465c99dc8c24b32588d8a60b611764d7cb5b0d22df5aaf90"


def test_what_a_federation_may_not_say():
    threshold = "threshold of a committee of 3 must be a whole number in \\[2, 3\\]"
    site, *others = json.loads(ROSTER.to_text())["sites"]
    twin_name, twin_key = site | {"key": "ab" * 32, "name": "SITE 1"}, site | {"name": "twin"}
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"sites": [site], "committee": [0]}, "size must be"),
        ({"sites": [site | {"key": "00"}]}, "."),
        ({"sites": [site, *others, twin_name]}, "two sites of one name"),
        ({"sites": [site, *others, twin_key]}, "two sites of one key"),
        ({"name": "a\nb"}, "must be printable text"),
        ({"name": "a\u202eb"}, "must be printable text"),  # turns round
        ({"name": "a" * 65}, "at most 64 characters"),
        *(({"threshold": number}, threshold) for number in (1, 4)),
        ({"committee": [0, 0, 1]}, "two sites of the committee: 0 is there twice"),
        ({"class-digest": "ab"}, "must be 64 hexadecimal digits"),
    ]
    each_is_refused(wrong, lambda changed: read(**changed), most=500)


def test_a_roster_of_a_message_is_canonical_or_refused():
    text = ROSTER.to_text()
    fields = json.loads(text)
    changed: dict[str, list[Any]] = {
        "more": [1],
        "committee": ["013", [3, 1, 0], [0, 9], [0, 1.0]],
        "threshold": [True],
        "sites": [{}, [1], "ab"],
        "name": [3, None],
        "class-digest": ["A" * 64, 0],
    }
    others = ["", "[]", "null", "[" * 100_000, text + " ", json.dumps(fields), text[:-1]]
    for key, values in changed.items():
        for value in values:
            row = {**fields, key: value}
            others.append(json.dumps(row, sort_keys=True, separators=(",", ":")))
    each_is_refused([(other, "") for other in others], Roster.from_text, most=300)
