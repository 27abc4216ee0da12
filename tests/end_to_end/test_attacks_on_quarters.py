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
from attackers import SITES, World, fedcal, forged, refused, write_rows
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


def sign_again(folder, key=KEY):
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


def bytes_of(name, change):
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


def header(**more):
    return array("header", lambda text: json.dumps(json.loads(str(text)) | more))


def first_count(step):
    return array("counts", lambda counts: np.r_[counts[0] + step, counts[1:]])


def flip(fields):
    fields["one_machine"] = not fields["one_machine"]


def with_its_page(alter):
    """And the page is made again of what is said now."""

    def both(folder):
        alter(folder)
        fedcal("report", folder)

    return both


def linked(name):
    def alter(folder):
        (folder / name).rename(folder.parent / name)
        (folder / name).symlink_to(f"../{name}")

    return alter


def instead(name, make):
    return lambda folder: ((folder / name).unlink(), make(folder / name))


def renamed(folder):
    edited("study.json", lambda fields: fields.update(name="2027Q1"))(folder)


# Altered, and signed again by the coordinator; words of which the refusal has one.
SIGNED_AGAIN = {
    "who chose the committee": (edited("study.json", flip), "one_machine", "study.json", "report"),
    "who chose the committee, page made again": (
        with_its_page(edited("study.json", flip)),
        *("one_machine", "one machine", "operator", "committee"),
    ),
    "a count off the grid": (first_count(1e-12), "count", "grid", "release"),
    "a count far off the grid": (first_count(1e-6), "count", "grid", "release"),
    "counts as other numbers": (array("counts", lambda a: a.astype("f4")), "count", "release"),
    "counts that are none": (array("counts", lambda a: a * np.nan), "count"),
    "an array more": (members(lambda held: held | {"more.npy": npy(np.zeros(9))}), "more"),
    "a member more": (members(lambda held: held | {"run.sh": b"x"}), "run.sh"),
    "a member above": (members(lambda held: held | {"../../x.npy": npy(0)}), "x.npy"),
    "an array less": (
        members(lambda held: {k: v for k, v in held.items() if k != "std.npy"}),
        *("std", "release"),
    ),
    "a header more": (header(note="x"), "note", "header", "release"),
    "a word of the rows more": (
        array("taken", lambda text: json.dumps(json.loads(str(text)) | {"note": 1})),
        *("note", "taken", "data", "release"),
    ),
    "other scores": (array("input", lambda _: "logits"), "input", "logits", "release"),
    "a script before the archive": (bytes_of("release.npz", b"#!/bin/sh\n".__add__), "release"),
    "a script behind the archive": (bytes_of("release.npz", lambda b: b + b"exit"), "release"),
    "a number more": (edited("study.json", lambda t: t.update(more=1)), "more"),
    "another headline": (edited("study.json", lambda t: t.update(headline="Fine.")), "headline"),
    "a page with more": (
        bytes_of("report.html", lambda page: page.replace(b"</body>", b"<b>Fine.</b></body>")),
        "report.html",
    ),
    "a file more": (lambda folder: (folder / "more.html").write_text("Fine."), "more.html"),
    "a hidden file more": (lambda folder: (folder / ".more").write_text("Fine."), ".more"),
    "a folder more": (lambda folder: (folder / "more").mkdir(), "more"),
    "an older signature": (lambda folder: (folder / "signature.json~").touch(), "signature.json~"),
    "an earlier quarter that was none": (
        lambda folder: shutil.copy(folder / "release.npz", folder / "earlier-2026Q3.npz"),
        "earlier-2026Q3",
    ),
    "a renamed quarter": (renamed, "name"),
    "a folder renamed": (lambda folder: folder.rename(folder.with_name("2027Q1")), "2027Q1"),
}

# Altered by somebody else: the signature is the true one.
NOT_SIGNED = {
    "a file more": SIGNED_AGAIN["a file more"],
    "a hidden file more": SIGNED_AGAIN["a hidden file more"],
    "a folder more": SIGNED_AGAIN["a folder more"],
    "an older signature": SIGNED_AGAIN["an older signature"],
    "a link more": (lambda folder: (folder / "more.html").symlink_to("../own.sealed"), "more.html"),
    "a changed page": SIGNED_AGAIN["a page with more"],
    "the release is a link": (linked("release.npz"), "release.npz", "link"),
    "the page is a link": (linked("report.html"), "report.html", "link"),
    "the release is a folder": (instead("release.npz", lambda p: p.mkdir()), "release"),
    "the page is a fifo": (instead("report.html", os.mkfifo), "report.html"),
    "the signature is a fifo": (instead("signature.json", os.mkfifo), "signature"),
    "no signature": (lambda folder: (folder / "signature.json").unlink(), "signed"),
}
FILES = ("study.json", "release.npz", "study.toml", "study.sealed", "ledger.json", "report.html")


@pytest.mark.parametrize("name", SIGNED_AGAIN)
def test_what_a_coordinator_altered_and_signed_is_refused(folder, name):
    alter, *naming = SIGNED_AGAIN[name]
    alter(folder)
    (folder,) = (path.parent for path in folder.parent.glob("*/study.json"))
    sign_again(folder)
    refused(lambda: verify(folder), folder.parent, *naming)


@pytest.mark.parametrize("name", NOT_SIGNED)
def test_what_somebody_altered_is_refused(folder, name):
    alter, *naming = NOT_SIGNED[name]
    alter(folder)
    refused(lambda: verify(folder), folder.parent, *naming)


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_was_cut_off_is_refused_signed_or_not(folder, name):
    bytes_of(name, lambda content: content[: len(content) // 2])(folder)
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
    refused(lambda: verify(tmp_path / "2026Q4"), tmp_path, "count", "grid", "noise")


def test_the_honest_quarter_is_verified_and_what_is_not_checked_is_named(folder):
    said = verify(folder, "--sealed", folder.parent / "own.sealed")
    assert (said.code, said.err) == (0, "")
    (unchecked,) = re.findall(r"(?s)(?:not checked|not verified|cannot).*", said.out.lower()) or [
        ""
    ]
    assert re.search(r"\bdate\b", unchecked), said.out
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
    refused(lambda: verify(folder), tmp_path, "sealed", "roster", "key")


def test_a_rehearsal_by_commands_is_verified_and_an_altered_one_refused(tmp_path, monkeypatch):
    world = World(tmp_path)
    world.office.mkdir(parents=True)
    words = ("--classes", "survived,sepsis", "--server", "host:9092")
    world.does("office", "study", "init", "sepsis.toml", "--sites", ",".join(SITES), *words)
    write_rows(world.office / "rows.csv", 1)
    world.does("office", "study", "run", "sepsis.toml", "trial", "--simulate", "rows.csv")
    assert "rehearsal" in world.does("office", "study", "verify", "trial")
    shutil.copytree(world.office / "trial", tmp_path / "trial")
    for name in (
        *("a count off the grid", "a count far off the grid", "an array more", "a header more"),
        *("a member above", "another headline", "a page with more"),
    ):
        alter, *naming = SIGNED_AGAIN[name]
        shutil.rmtree(world.office / "trial")
        shutil.copytree(tmp_path / "trial", world.office / "trial")
        alter(world.office / "trial")
        world.is_refused("office", "study", "verify", "trial", naming=tuple(naming))
