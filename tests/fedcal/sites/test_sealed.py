"""What sites send back and what the coordinator seals: read as written, and nothing else."""

import json
import re
from dataclasses import replace
from itertools import pairwise

import pytest
from hospitals import SITES, Hospitals, write_rows
from quarters import connection
from refusals import refused
from studies import study

from fedcal.results.page import block_lines
from fedcal.secure_aggregation.keys import SigningKey, digest
from fedcal.secure_aggregation.roster import in_words
from fedcal.sites.sealed import Join, Sealed, signed_text
from fedcal.storage.atomic import write_file

ONE = study()
KEYS = {name: SigningKey.generate() for name in ONE.sites}
CONNECTIONS = {name: connection(name) for name in ONE.sites}
COORDINATOR = SigningKey.generate()


def join(name, of=ONE, **changes):
    made = Join(of.study, of.digest, name, KEYS[name].public, CONNECTIONS[name], of.class_digest)
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


def test_a_roster_of_other_terms_is_refused_though_it_is_signed(tmp_path):
    path, other = tmp_path / "file", study(epsilon=40.0)
    forged = replace(sealed(), study=other)
    write_file(path, forged.to_text(COORDINATOR))
    refused("the roster of .* is another one", Sealed.read, path)


# -- by command: what a coordinator, or whoever stands between, can send ----------------------


@pytest.fixture
def there(tmp_path, monkeypatch, call, quick_figures):
    """A sealed study of three sites that have joined."""
    monkeypatch.chdir(tmp_path)
    hospitals = Hospitals(tmp_path)
    hospitals.kits()
    write_rows(tmp_path / "rows.csv")
    for site in SITES:
        call("site", "join", hospitals.kit(site), "rows.csv")
    seal(hospitals, call)
    return hospitals


def seal(there, call):
    return call("study", "seal", there.file, *(f"{site}.join" for site in SITES))


def shown(output):
    """The 12 words that a command shows in a line of their own."""
    (words,) = re.findall(r"^(?:[a-z]{3,8} ){11}[a-z]{3,8}$", output, re.MULTILINE)
    return words


def key_of(there):
    return SigningKey.from_pem((there.folder / "sepsis-coordinator/coordinator.pem").read_bytes())


def forged(there, signer=None, text=None, **change):
    """The sealed study with other fields, signed by its coordinator or by another key."""
    (there.folder / "good").write_text(text or there.sealed.read_text())
    made = replace(Sealed.read(there.folder / "good"), **change)
    signer = signer or key_of(there)
    there.sealed.write_text(replace(made, coordinator=signer.public).to_text(signer))


def test_the_words_tell_whatever_a_coordinator_may_exchange(there, call):
    """Terms, sites' keys, coordinator, authority, server and connections; all of it or nothing."""
    good, before = there.sealed.read_text(), Sealed.read(there.sealed)
    accept = ["site", "accept", there.kit(), there.sealed, "--yes"]
    agreed = shown(call(*accept))
    assert agreed == shown(seal(there, call))  # what is sealed again is the same
    assert there.sealed.read_text() != good  # but for the date
    assert shown(call(*accept)) == agreed
    roster = before.study.roster(
        {m.name: m.key for m in before.roster.sites} | {"birch": SigningKey.generate().public}
    )
    elsewhere = replace(before.study, server="evil.example:9092")
    dearer = replace(before.study, epsilon=8.0)
    by_dearer = dearer.roster({m.name: m.key for m in before.roster.sites})
    authority = before.authority.replace("A", "B", 1)
    changes = {
        "coordinator": {"signer": SigningKey.generate()},
        "keys": {"roster": roster, "asked": before.study.asked(roster)},
        "terms": {"study": dearer, "roster": by_dearer, "asked": dearer.asked(by_dearer)},
        "server": {"study": elsewhere},
        "authority": {"authority": authority},
        "connections": {"connections": dict(before.connections) | {"birch": connection("birch")}},
        "machine": {"one_machine": True},
    }
    output = {"": agreed}
    (there.kit() / "ca.crt").write_text(authority)  # a coordinator sends this one, too
    for name, change in changes.items():
        if name != "authority":
            (there.kit() / "ca.crt").write_text(before.authority)
        else:
            (there.kit() / "ca.crt").write_text(authority)
        forged(there, text=good, revision=before.revision + 1, **change)
        (there.own() / "study.sealed").write_text(good)
        output[name] = shown(call(*accept))
    assert len({*output.values()}) == len(output)
    (there.kit() / "ca.crt").write_text(before.authority)
    forged(there, text=good, revision=99, asked=replace(before.asked, result_bytes=1))
    assert "the result_bytes that is asked, by the study itself, must be" in call(*accept, code=2)


def test_seals_are_ordered_by_their_revision_and_not_by_a_date(there, call):
    """Of what a site has accepted no earlier one takes the place, whatever date it says."""
    accept = ["site", "accept", there.kit(), there.sealed, "--yes"]
    first = there.sealed.read_text()
    forged(there, when="2999-01-01T00:00:00+00:00")
    call(*accept)
    there.sealed.write_text(first)
    seal(there, call)
    call(*accept)  # of the same revision, and the same
    call("site", "join", there.kit("birch"), "rows.csv", "--new-keys")
    assert "revision 2" in seal(there, call)
    second = there.sealed.read_text()
    call(*accept)
    there.sealed.unlink()  # the coordinator has lost it
    call("site", "join", there.kit("birch"), "rows.csv", "--new-keys")
    assert "revision 3" in seal(there, call)
    third = there.sealed.read_text()
    call(*accept)
    there.sealed.write_text(second)
    forged(there, when="2999-01-01T00:00:00+00:00")
    assert "must be a whole number >= 4, got 2" in call(*accept, code=2)
    forged(there, text=second, revision=3)
    assert "must be a whole number >= 4, got 3" in call(*accept, code=2)
    forged(there, text=third, revision=2.5)
    assert "revision of" in call(*accept, code=2)
    more = json.loads(third) | {"note": "trust me"}
    there.sealed.write_text(signed_text(more, "study-sealed", key_of(there)))
    assert "'note'; allowed" in call(*accept, code=2)


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


@pytest.mark.parametrize(
    ("method", "settings", "words"),
    [
        (
            "fednewton",
            {"rows_per_client": 500},
            "Gradient and curvature .* (length 2, rounds 1 to 4)",
        )
    ],
)
def test_what_is_asked_is_shown_in_words_at_accept(method, settings, words):
    """With its bound, its noise, its rounds and who gets the result, for any method."""
    one = sealed(study(question={"method": method, "settings": settings}))
    asked = one.asked
    about = {"site": "alder", "others": "", "changed": [], "words": ""}
    shown = block_lines("study", "offer", study=one.study, sealed=one, since="", **about)
    lines = {line.split()[0]: line for line in shown if line.startswith("  ")}
    assert re.search(words.replace("(", r"\(").replace(")", r"\)"), lines["asked"])
    plan = asked.plan
    assert f"numbers of a round by {max(plan.bound.norms):.3g}" in lines["bound"]
    assert all(f"{std:.3g}" in lines["noise"] for std in plan.noise_std)
    assert "for the coordinator and each site" in lines["result"]
