"""Rosters: their canonical form, their file, and what is refused."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from refusals import each_is_refused

from fedcal.core.checks import InputError
from fedcal.core.naming import digest_of
from fedcal.secure_aggregation.keys import SigningKey
from fedcal.secure_aggregation.roster import Committee, Member, Roster

KEYS = [SigningKey(bytes([n]) * 32) for n in range(9)]
SITES = tuple(Member(f"site {n}", key.public) for n, key in enumerate(KEYS[:5]))
ROSTER = Roster("hearts", SITES, Committee((0, 1, 3), 2), digest_of(["healthy", "disease"]))


def written(path: Path, text: str) -> Path:
    (file := path / "federation.toml").write_text(text, "utf-8")
    return file


def table(**changed: Any) -> dict[str, Any]:
    return {**tomllib.loads(ROSTER.to_toml()), **changed}


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
        assert Roster.from_text(text) == Roster._of(tomllib.loads(roster.to_toml())) == roster
        assert Roster.from_text(text).to_text() == text
    assert len({ROSTER.digest, *(roster.digest for roster in changed)}) == len(changed) + 1
    # sites pin it for years: another digest for the same file is another protocol
    assert ROSTER.digest == "62fcb8188b3cca7f465c99dc8c24b32588d8a60b611764d7cb5b0d22df5aaf90"


def test_what_a_federation_may_not_say(tmp_path):
    threshold = "threshold of a committee of 3 must be a whole number in \\[2, 3\\]"
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"site": None}, "'site' of the federation is missing"),
        ({"site": table()["site"][:1], "committee": ["site 0"]}, "size must be"),
        ({"site": [{"name": "a", "keys": ""}]}, "did you mean 'key'"),
        ({"site": [{"name": "a", "key": "00"}]}, "must be 64 hexadecimal digits"),
        ({"name": "a\u202eb"}, "must be printable text"),  # turns round
        *(({"threshold": number}, threshold) for number in (1, 4)),
        ({"committee": ["site 0", "site 9"]}, "unknown site of the committee 'site 9'"),
        ({"committee": ["site 0", "site 0"]}, "two sites of the committee: 0 is there twice"),
        ({"class-digest": "ab"}, "must be 64 hexadecimal digits"),
        ({"signature": {"coordinator": "00" * 32}}, "unknown key of the federation 'signature'"),
    ]

    def read(changed: dict[str, Any]) -> Roster:
        known = {key: value for key, value in table(**changed).items() if value is not None}
        return Roster.read(written(tmp_path, tomli_w.dumps(known)))

    each_is_refused(
        [(changed, f"federation.toml.*{message}") for changed, message in wrong], read, most=500
    )


@pytest.mark.parametrize("column", ["name", "key"])
def test_no_two_sites_are_one(column, tmp_path):
    sites = table()["site"]
    sites[4][column] = sites[1][column].upper()
    with pytest.raises(InputError, match=f"two sites of one {column}"):
        Roster.read(written(tmp_path, tomli_w.dumps(table(site=sites))))


def test_damaged_and_hostile_files_are_one_line(tmp_path):
    file = tmp_path / "f.toml"
    for content in (b"a = ", b"\xff\xfe", b"a = " + b"[" * 100_000, b"#" * ((1 << 25) + 1)):
        file.write_bytes(content)
        each_is_refused([(file, r"f\.toml")], Roster.read, most=400)
    each_is_refused([(Path("/dev/zero"), "does not exist, or is not a file")], Roster.read)


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
