"""What sites send back and what the coordinator seals: read as written, and nothing else."""

import json
import re
from dataclasses import replace
from itertools import pairwise

import pytest
from quarters import connection
from refusals import refused
from studies import study

from fedcal.results.page import block_lines
from fedcal.secure_aggregation.keys import SigningKey, digest
from fedcal.secure_aggregation.roster import in_words
from fedcal.sites.joining import join as join_study
from fedcal.sites.sealed import Join, Sealed, signed_text
from fedcal.sites.study_file import Study
from fedcal.storage.atomic import write_file

ONE = study()
KEYS = {name: SigningKey.generate() for name in ONE.sites}
KEYS_OF = {name: key.public for name, key in KEYS.items()}
CONNECTIONS = {name: connection(name) for name in ONE.sites}
COORDINATOR = SigningKey.generate()


def join(name, of=ONE, **changes):
    made = Join(of.study, of.digest, name, KEYS[name].public, CONNECTIONS[name])
    return replace(made, **changes)


def sealed(of=ONE):
    return Sealed.of(of, [join(name, of) for name in of.sites], "PEM", COORDINATOR)


@pytest.mark.parametrize("line", ["ssh-a\nssh-b", "no key"])
def test_a_connection_is_one_public_key(tmp_path, line):
    write_file(tmp_path / "file", join("alder", connection=line).to_text(KEYS["alder"]))
    refused("is no public ECDSA key", Join.read, tmp_path / "file")


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
            write_file(path, json.dumps({**fields, name: other}))
            refused(".*", read, path)
    for more, why in (
        ({"revision": 2.5}, "revision of"),
        ({"note": "trust me"}, "'note'; allowed"),
    ):
        write_file(path, signed_text(fields | more, "study-sealed", COORDINATOR))
        refused(why, Sealed.read, path)


def test_files_of_the_version_before_are_read(tmp_path):
    path = tmp_path / "file"
    old = json.loads(join("alder").to_text(KEYS["alder"])) | {"classes": "0" * 64}
    write_file(path, signed_text(old, "study-join", KEYS["alder"]))
    assert Join.read(path) == join("alder")
    old = json.loads(sealed().to_text(COORDINATOR))
    old["study"] = f'contributors = ["A. B."]\n{old["study"]}'
    write_file(path, signed_text(old, "study-sealed", COORDINATOR))
    assert Sealed.read(path).digest == sealed().digest
    write_file(path, old["study"])
    assert Study.read(path).digest == ONE.digest


def test_a_roster_of_other_terms_is_refused_though_it_is_signed(tmp_path):
    path, other = tmp_path / "file", study(epsilon=40.0)
    forged = replace(sealed(), study=other)
    write_file(path, forged.to_text(COORDINATOR))
    refused("the roster of .* is another one", Sealed.read, path)


def test_the_words_tell_whatever_a_coordinator_may_exchange():
    one = sealed()
    changes = {
        "coordinator": SigningKey.generate().public,
        "roster": ONE.roster(KEYS_OF | {"birch": SigningKey.generate().public}),
        "study": study(epsilon=8.0),
        "authority": "another",
        "connections": CONNECTIONS | {"birch": connection("birch")},
        "one_machine": True,
        "asked": replace(one.asked, result_bytes=1),
    }
    others = [replace(one, **{name: value}) for name, value in changes.items()]
    others.append(replace(one, study=replace(ONE, server="evil.example:9092")))
    assert len({in_words(each.digest) for each in [one, *others]}) == len(others) + 1
    # what is sealed again is the same, but for the date
    assert replace(one, when="2999-01-01T00:00:00+00:00", revision=9).digest == one.digest


@pytest.mark.usefixtures("quick_figures")
def test_seals_have_revisions_though_the_coordinator_loses_one(there):
    """What a site makes of them: tests/end_to_end/test_attacks_on_studies.py."""
    there.joined()
    assert [there.seal().revision for _ in range(2)] == [1, 1]
    for revision in (2, 3):
        join_study(there.kit("birch"), "rows.csv", new_keys=True)
        assert there.seal().revision == revision
        there.sealed.unlink()


def test_twelve_words_are_132_bits():
    """Each of these bits is in one word, all 2,048 words are used, and no two look alike."""
    seen = set()
    for k in range(400):
        seen |= {*in_words(digest("x", bytes([k % 256, k // 256])).hex()).split()}
    assert len(seen) > 1800
    assert len({word[:4] for word in seen}) == len(seen)
    zero = in_words("0" * 64).split()
    for bit in range(256):
        words = in_words(f"{1 << (255 - bit):064x}").split()
        other = [k for k in range(12) if words[k] != zero[k]]
        assert (len(words), other) == (12, [bit // 11] if bit < 132 else [])


def test_what_is_asked_is_shown_in_words_at_accept():
    """With its bound, its noise, its rounds and who gets the result, for any method."""
    one = sealed(study(question={"method": "fednewton", "settings": {"rows_per_client": 500}}))
    asked = one.asked
    about = {"site": "alder", "others": "", "changed": [], "words": ""}
    shown = block_lines("study", "offer", study=one.study, sealed=one, since="", **about)
    lines = {line.split()[0]: line for line in shown if line.startswith("  ")}
    assert re.search(r"Gradient and curvature .* \(length 2, rounds 1 to 4\)", lines["asked"])
    plan = asked.plan
    assert f"numbers of a round by {max(plan.bound.norms):.3g}" in lines["bound"]
    assert all(f"{std:.3g}" in lines["noise"] for std in plan.noise_std)
    assert "for the coordinator and each site" in lines["result"]
