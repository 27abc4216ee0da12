"""A hostile coordinator or server's operator: quarters that are altered, and signed again."""

import hashlib
import io
import json
import os
import re
import shutil
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import quarters
from attackers import World, fedcal, forged, refused
from hospitals import SITES, table, write_rows
from quarters import hospitals, quarter, sealed_of

from fedcal.secure_aggregation.keys import SigningKey

pytestmark = pytest.mark.usefixtures("quick_figures")
STUDY = hospitals(sites="alder=300,birch=600,cedar=900")
KEY, STRANGER = SigningKey.generate(), SigningKey.generate()


@pytest.fixture(scope="module")
def made(tmp_path_factory, quick_figures):
    """A signed quarter, and a rehearsal, which is not signed."""
    root = tmp_path_factory.mktemp("made")
    quarter(root / "2026Q4", STUDY, KEY, signer=KEY)
    (root / "own.sealed").write_bytes((root / "2026Q4" / "study.sealed").read_bytes())
    return root


@pytest.fixture
def folder(made, tmp_path):
    shutil.copytree(made, tmp_path / "desk")
    return tmp_path / "desk" / "2026Q4"


def sign_again(folder):
    """What a coordinator does who verifies nothing."""
    files = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.is_file() and path.name != "signature.json"
    }
    path = folder / "signature.json"
    text = path.read_text("utf-8")
    changed = forged(text, "study-quarter", KEY, lambda fields: fields.update(files=files))
    path.write_text(changed, "utf-8")


def verify(folder, *more):
    return fedcal("study", "verify", folder, *more)


def edited(name, change):
    """A JSON file with another content."""

    def alter(folder):
        fields = json.loads((folder / name).read_text("utf-8"))
        change(fields)
        (folder / name).write_text(json.dumps(fields, indent=2) + "\n", "utf-8")

    return alter


def content(name, change):
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


def npy(array):
    held = io.BytesIO()
    np.save(held, np.asarray(array))
    return held.getvalue()


def members(change, name="release.npz"):
    """An archive of arrays with other members."""

    def alter(folder):
        with zipfile.ZipFile(folder / name) as archive:
            held = {member: archive.read(member) for member in archive.namelist()}
        with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, content in change(held).items():
                archive.writestr(zipfile.ZipInfo(member, (1980, 1, 1, 0, 0, 0)), content)

    return alter


def array(name, change):
    def altered(held):
        old = np.load(io.BytesIO(held[f"{name}.npy"]))
        return held | {f"{name}.npy": npy(change(old))}

    return members(altered)


def noted(text):
    return json.dumps(json.loads(str(text)) | {"note": "x"})


def add(step):
    return lambda counts: np.r_[counts[:-1], counts[-1] + step]


def flip(fields):
    fields["one_machine"] = not fields["one_machine"]


def with_its_page(change):
    return lambda folder: (edited("study.json", change)(folder), fedcal("report", folder))


def instead(name, make):
    def alter(folder):
        (folder / name).rename(folder.parent / name)
        make(folder / name, f"../{name}")

    return alter


def with_a_note(name, purpose):
    """A signed file with one field more, signed again."""

    def alter(folder):
        text = (folder / name).read_text("utf-8")
        changed = forged(text, purpose, KEY, lambda fields: fields.update(note="x"))
        (folder / name).write_text(changed, "utf-8")

    return alter


# What the refusal names, and what is altered; then the coordinator signs it again.
SIGNED_AGAIN = {
    "who chose the committee": ("one machine|report", edited("study.json", flip)),
    "who chose it, on the page, too": ("one|operator|committee", with_its_page(flip)),
    "a count off the grid": ("count|grid|release", array("counts", add(1e-12))),
    "a count far off the grid": ("count|grid|release", array("counts", add(1e-6))),
    "a count of a tenth": ("count", array("counts", add(0.1))),
    "counts of another type": ("release.npz", array("counts", lambda a: a.astype(">f8"))),
    "counts that are none": ("count", array("counts", lambda a: a * np.nan)),
    "an array more": ("release.npz", members(lambda held: held | {"more.npy": npy(np.zeros(9))})),
    "a member more": ("run.sh", members(lambda held: held | {"run.sh": b"x"})),
    "a member above": ("x.npy", members(lambda held: held | {"../../x.npy": npy(0)})),
    "an array less": ("std", members(lambda held: held.pop("std.npy") and held)),
    "a header more": ("release.npz", array("header", noted)),
    "a word of the rows more": ("release.npz", array("taken", noted)),
    "other scores": ("release.npz", array("input", lambda _: "logits")),
    "a script before the archive": ("release", content("release.npz", b"#!/bin/sh\n".__add__)),
    "a script behind the archive": ("release", content("release.npz", lambda b: b + b"exit")),
    "a comment of the archive": (
        "release.npz",
        content("release.npz", lambda b: b[:-2] + b"\5\0exact"),
    ),
    "bytes behind an array": (
        "counts",
        members(lambda held: held | {"counts.npy": held["counts.npy"] + b"exact"}),
    ),
    "spaces in a summary": ("study.json", content("study.json", lambda b: b + b" ")),
    "a comment in the study": ("study.toml", content("study.toml", lambda b: b + b"# x")),
    "more in the sealed study": ("note", with_a_note("study.sealed", "study-sealed")),
    "more in the signature": ("note", with_a_note("signature.json", "study-quarter")),
    "a number more": ("extra", edited("study.json", lambda t: t.update(extra=1))),
    "another headline": ("headline", edited("study.json", lambda t: t.update(headline="Fine."))),
    "a changed page": ("report.html", content("report.html", lambda b: b.replace(b"</p>", b"!"))),
    "a file more": ("more.html", lambda folder: (folder / "more.html").touch()),
    "a hidden file more": (".more", lambda folder: (folder / ".more").touch()),
    "a folder more": ("more", lambda folder: (folder / "more").mkdir()),
    "an older signature": ("signature.json~", lambda folder: (folder / "signature.json~").touch()),
    "no earlier quarter": (
        "2026Q3",
        lambda folder: shutil.copy(folder / "release.npz", folder / "earlier-2026Q3.npz"),
    ),
    "a renamed quarter": ("name", edited("study.json", lambda t: t.update(name="2027Q1"))),
    "a renamed folder": ("2027Q1", lambda folder: folder.rename(folder.with_name("2027Q1"))),
}

# The same of somebody else: the signature is the true one.
SAME = "a file more", "a hidden file more", "a folder more", "an older signature", "a changed page"
NOT_SIGNED = {name: SIGNED_AGAIN[name] for name in SAME} | {
    "a link more": ("more", lambda folder: (folder / "more.html").symlink_to("../own.sealed")),
    "the release is a link": (
        "release.npz|link",
        instead("release.npz", lambda p, q: p.symlink_to(q)),
    ),
    "the page is a link": (
        "report.html|link",
        instead("report.html", lambda p, q: p.symlink_to(q)),
    ),
    "the release is a folder": ("release", instead("release.npz", lambda p, q: p.mkdir())),
    "the page is a fifo": ("report.html", instead("report.html", lambda p, q: os.mkfifo(p))),
    "no signature": ("signed", instead("signature.json", lambda p, q: None)),
}
FILES = ("study.json", "release.npz", "study.toml", "study.sealed", "ledger.json", "report.html")


@pytest.mark.parametrize("name", SIGNED_AGAIN)
def test_what_a_coordinator_altered_and_signed_is_refused(folder, name):
    naming, alter = SIGNED_AGAIN[name]
    alter(folder)
    (folder,) = (path.parent for path in folder.parent.glob("*/study.json"))
    sign_again(folder)
    refused(lambda: verify(folder), folder.parent, naming)


@pytest.mark.parametrize("name", NOT_SIGNED)
def test_what_somebody_altered_is_refused(folder, name):
    naming, alter = NOT_SIGNED[name]
    alter(folder)
    refused(lambda: verify(folder), folder.parent, naming)


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_was_cut_off_is_refused_signed_or_not(folder, name):
    content(name, lambda content: content[: len(content) // 2])(folder)
    refused(lambda: verify(folder), folder.parent, name)
    sign_again(folder)
    refused(lambda: verify(folder), folder.parent, name.partition(".")[0])


@pytest.mark.parametrize(("at", "step"), [(0, -300.0), (7, 0.25 + 2.0**-30)])
def test_counts_that_no_noise_made_are_refused_although_every_number_follows(
    tmp_path, monkeypatch, at, step
):
    """Negative beyond the tail of the noise, or between two steps of its grid."""
    made = quarters.release_of

    def other(*given, **more):
        release = made(*given, **more)
        counts = release.counts.copy()
        counts[at] = min(counts[at], 0.0) + step
        return replace(release, counts=counts)

    monkeypatch.setattr(quarters, "release_of", other)
    quarter(tmp_path / "2026Q4", STUDY, KEY, signer=KEY)
    refused(lambda: verify(tmp_path / "2026Q4"), tmp_path, "count|grid|noise")


def test_the_honest_quarter_is_verified_and_what_is_not_checked_is_named(folder):
    output = verify(folder, "--sealed", folder.parent / "own.sealed")
    assert (output.code, output.err) == (0, "")
    (unchecked,) = re.findall(r"(?s)(?:not checked|not verified|cannot).*", output.out.lower()) or [
        ""
    ]
    assert re.search(r"\bdate\b", unchecked), output.out
    assert re.search(r"sites?|hospitals?", unchecked), "whether the counts are what they sent"
    sign_again(folder)
    assert verify(folder).code == 0


def test_a_quarter_of_another_study_or_coordinator_is_refused(folder, tmp_path):
    own = tmp_path / "other.sealed"
    for other in (sealed_of(replace(STUDY, epsilon=2.0), KEY), sealed_of(STUDY, STRANGER)):
        own.write_text(other, "utf-8")
        refused(lambda: verify(folder, "--sealed", own), tmp_path, "sealed")
    shutil.copy(own, folder / "study.sealed")
    sign_again(folder)
    refused(lambda: verify(folder), tmp_path, "sealed|roster|key")


def test_a_rehearsal_by_commands_is_verified_and_an_altered_one_refused(tmp_path, monkeypatch):
    world = World(tmp_path)
    world.init()
    rows = table() | {"client": [SITES[int(name[1:]) % 3] for name in table()["patient"]]}
    write_rows(world.office / "rows.csv", rows)
    world.does("office", "study run sepsis.toml trial --rehearse rows.csv")
    assert "rehearsal" in world.does("office", "study verify trial")
    shutil.copytree(world.office / "trial", tmp_path / "trial")
    for name in (
        *("a count off the grid", "a count far off the grid", "an array more", "a header more"),
        *("a member above", "another headline", "a changed page"),
    ):
        naming, alter = SIGNED_AGAIN[name]
        shutil.rmtree(world.office / "trial")
        shutil.copytree(tmp_path / "trial", world.office / "trial")
        alter(world.office / "trial")
        world.is_refused("office", "study verify trial", naming)
