"""What sites send back and what the coordinator seals: read as written, and nothing else."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from quarters import connection
from refusals import refused
from studies import study

from fedcal.experiments.study.sealed import Join, Sealed, write_text
from fedcal.secure_aggregation.keys import SigningKey

ONE = study()
KEYS = {name: SigningKey.generate() for name in ONE.sites}
CONNECTIONS = {name: connection(name) for name in ONE.sites}
COORDINATOR = SigningKey.generate()


def join(name, of=ONE, **changes):
    made = Join(
        of.study,
        of.digest,
        name,
        KEYS[name].public,
        CONNECTIONS[name],
        of.class_digest,
    )
    return replace(made, **changes)


def sealed(of=ONE):
    return Sealed.of(of, [join(name, of) for name in of.sites], "PEM", COORDINATOR)


def test_both_files_read_as_they_were_written(tmp_path):
    path = tmp_path / "file"
    write_text(path, join("alder").to_text(KEYS["alder"]))
    assert Join.read(path) == join("alder")
    write_text(path, sealed().to_text(COORDINATOR))
    again = Sealed.read(path)
    assert again.roster == sealed().roster
    assert again.digest == sealed().digest
    assert ONE.digest[:32] in again.roster.name  # so people who compare the one compare both


@pytest.mark.parametrize(
    ("joins", "word"),
    [
        ([], "no key of alder"),
        ([join("alder"), join("alder")], "two .join files of alder"),
        ([join("alder", site="oak")], "none of the sites"),
        ([join("alder", study(epsilon=9.0))], "other terms"),
        ([join("alder", classes="0" * 64)], "other classes"),
    ],
)
def test_who_does_not_belong_is_not_enrolled(joins, word):
    refused(word, Sealed.of, ONE, joins, "PEM", COORDINATOR)


@pytest.mark.parametrize("line", ["\ud800", "ssh-a\nssh-b", "no key"])
def test_a_connection_is_one_public_key(tmp_path, line):
    write_text(tmp_path / "file", join("alder", connection=line).to_text(KEYS["alder"]))
    refused("is not a public ECDSA key", Join.read, tmp_path / "file")


def test_any_changed_field_is_found(tmp_path):
    path = tmp_path / "file"
    for text, read in (
        (join("alder").to_text(KEYS["alder"]), Join.read),
        (sealed().to_text(COORDINATOR), Sealed.read),
    ):
        fields = json.loads(text)
        for name, value in fields.items():
            if name == "schema":
                continue
            # another well-formed value: of a text, its last two characters the other way round
            other = (
                dict.fromkeys(value, "ecdsa-sha2-nistp384 AAAB")
                if isinstance(value, dict)
                else not value
                if isinstance(value, int)
                else value.replace(*next(p for p in pairwise(value) if p[0] != p[1]), 1)
            )
            write_text(path, json.dumps({**fields, name: other}))
            refused(".*", read, path)


def test_a_roster_of_other_terms_is_refused_though_it_is_signed(tmp_path):
    path, other = tmp_path / "file", study(epsilon=40.0)
    forged = replace(sealed(), study=other)
    write_text(path, forged.to_text(COORDINATOR))
    refused("its roster is not that of its terms", Sealed.read, path)
