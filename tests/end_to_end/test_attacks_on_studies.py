"""A hostile coordinator or carrier of mail: kits that bring more, studies that are sealed anew."""

import base64
import datetime
import difflib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from attackers import SITES, World, forged, keys_in
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedcal.secure_aggregation.keys import SigningKey, read_key

pytestmark = pytest.mark.usefixtures("quick_figures")
JOIN = ("site", "join", "alder", "rows.csv")
LATER = "2099-01-01T00:00:00+00:00"
NO_DATES = ("soon", "2026-13-45", "", 5, None, ["2026"], "zzzz")


@pytest.fixture(scope="module")
def world(tmp_path_factory, quick_figures):
    world = World(tmp_path_factory.mktemp("world"))
    world.begin()
    return world


def connection():
    """A key for the server, and its public line."""
    key, coding = ec.generate_private_key(ec.SECP384R1()), serialization
    secret = key.private_bytes(
        coding.Encoding.PEM, coding.PrivateFormat.OpenSSH, coding.NoEncryption()
    )
    public = key.public_key()
    line = public.public_bytes(coding.Encoding.OpenSSH, coding.PublicFormat.OpenSSH)
    return secret, line.decode()


def plant_keys(folder):
    """Keys of the attacker's, as a site would have made them."""
    folder.mkdir(exist_ok=True)
    secret, line = connection()
    held = {"signing.pem": SigningKey.generate().to_pem(), "connection.key": secret}
    for name, content in (held | {"connection.pub": f"{line} alder\n".encode()}).items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
    folder.chmod(0o700)


def keys_as(name):
    return lambda kit: plant_keys(kit / name)


def and_keys(plant):
    return lambda kit: (plant_keys(kit / "keys"), plant(kit))


def file(name):
    return lambda kit: (kit / name).write_text("planted")


def link(name, to="../../elsewhere"):
    def plant(kit):
        path = kit / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        path.symlink_to(to)

    return plant


def instead(name, how):
    """A file of the kit is also there by another name, or is no file."""

    def plant(kit):
        other = kit.parent.parent / "elsewhere" / name
        other.unlink(missing_ok=True)
        shutil.move(kit / name, other)
        kinds = {
            "link": lambda: (kit / name).symlink_to(f"../../elsewhere/{name}"),
            "hard link": lambda: (kit / name).hardlink_to(other),
            "fifo": lambda: os.mkfifo(kit / name),
            "folder": (kit / name).mkdir,
        }
        kinds[how]()

    return plant


def state(kit):
    (kit / "state").mkdir()
    (kit / "state" / "records.sqlite").write_bytes(b"")


def says(name, old, new):
    def change(kit):
        text = (kit / name).read_text("utf-8")
        assert old in text
        (kit / name).write_text(text.replace(old, new), "utf-8")

    return change


# What comes by mail, and words of which the refusal has one.
KITS = {
    "keys": (keys_as("keys"), "keys"),
    "keys in capitals": (keys_as("KEYS"), "keys"),
    "keys with one capital": (keys_as("Keys"), "keys"),
    "keys in wide letters": (keys_as("ｋｅｙｓ"), "not part", "keys"),
    "keys with a Cyrillic letter": (keys_as("k\u0435ys"), "not part", "k\u0435ys"),
    "keys with a composed letter": (keys_as("ke\u0301ys"), "not part", "ke\u0301ys"),
    "keys and no width": (keys_as("keys\u200b"), "not part", "keys"),
    "keys and a space": (keys_as("keys "), "not part", "keys"),
    "no keys yet": (lambda kit: (kit / "keys").mkdir(), "keys"),
    "a file of that name": (file("keys"), "keys"),
    "keys are elsewhere": (
        lambda kit: (plant_keys(kit.parent / "k"), link("keys", "../k")(kit)),
        *("keys", "link"),
    ),
    "keys will be elsewhere": (link("keys", "../../elsewhere/new"), "keys", "link"),
    "keys in another file": (
        lambda kit: (kit / "signing.pem").write_bytes(SigningKey.generate().to_pem()),
        "signing.pem",
    ),
    "keys, home elsewhere": (and_keys(link("home")), "keys", "home"),
    "keys, a file at home elsewhere": (
        and_keys(
            lambda kit: (
                (kit / "home").mkdir(),
                link("home/report.html", "../../../elsewhere/report.html")(kit),
            )
        ),
        *("keys", "home"),
    ),
    "keys, records": (and_keys(state), "keys", "state"),
    "keys, a file more": (and_keys(file("compose.override.yml")), "keys", "compose.override"),
    "keys, rows elsewhere": (and_keys(link("rows.json", "../rows.json")), "keys", "rows.json"),
    "home elsewhere": (link("home"), "home", "link"),
    "records": (state, "state"),
    "records of a key": (file("signing.pem.records"), "signing.pem.records"),
    **{
        f"{name} before it is made": (file(name), name)
        for name in ("site.toml", "federation.toml", "study.sealed", "rows.json", "alder.join")
    },
    **{name: (file(name), name) for name in (".env", "STUDY.TOML", "rows.csv", "study.toml~")},
    "a name that clears a screen": (file("\x1b[2Jstudy.toml"), "study.toml"),
    "a name of two lines": (file("a\nfedcal: all is well"), "all is well"),
    "a name from right to left": (file("lmth.\u202eevil"), "lmth"),
    "a folder more": (lambda kit: (kit / "more").mkdir(), "more"),
    **{
        f"{name} is a {how}": (instead(name, how), name, "link")
        for name, how in (
            *((name, "link") for name in ("study.toml", "ca.crt", "start.sh", "kit.json")),
            *((name, "hard link") for name in ("study.toml", "compose.yml", "start.sh")),
            *(("fedcal-site.service", "hard link"), ("ca.crt", "hard link")),
            *((name, "fifo") for name in ("study.toml", "kit.json", "ca.crt", "read-me.html")),
            *((name, "folder") for name in ("kit.json", "policy.toml", "ca.crt")),
        )
    },
    "a site above its folder": (says("kit.json", "alder", "../../elsewhere/alder"), "alder"),
    "a site's name is a path": (says("study.toml", "alder", '"../alder"'), "name"),
    "a server of two lines": (says("study.toml", ":9092", ":9092\\nUser=0"), "server"),
}

# What comes by mail when keys are there: the new kit is laid over the old one.
AGAIN = {
    name: KITS[name]
    for name in (
        *("keys", "keys in capitals", "keys in wide letters", "home elsewhere"),
        *("study.toml is a link", "study.toml is a hard link", "compose.yml is a hard link"),
        *("ca.crt is a fifo", "start.sh is a link", "keys in another file"),
    )
}


def planted(world, day, plant):
    """A kit with more in it, and its files elsewhere as they then are."""
    world.back_to(day)
    plant(world.kit())


@pytest.mark.parametrize("name", KITS)
def test_a_kit_with_anything_but_a_kit_is_refused_and_nothing_is_written(world, name):
    plant, *naming = KITS[name]
    planted(world, "kits", plant)
    world.is_refused("alder", *JOIN, naming=tuple(naming))


@pytest.mark.parametrize("name", AGAIN)
def test_a_kit_over_a_kit_that_has_joined_brings_no_more(world, name):
    plant, *naming = AGAIN[name]
    planted(world, "joined", plant)
    world.is_refused("alder", *JOIN, naming=tuple(naming))


def test_keys_are_the_sites_own_and_lie_outside_what_came_by_mail(world):
    world.back_to("kits")
    sent = world.join()
    assert not keys_in(world.kit()), "the coordinator's next kit could bring such files"
    own = keys_in(world.now / "alder")
    assert sent["key"] in own
    assert len(own) >= 2  # one signs, one connects
    for path in own.values():
        assert path.stat().st_mode & 0o077 == 0, path
        assert path.parent.stat().st_mode & 0o077 == 0, path.parent
    assert not set(own.values()) & set(keys_in(world.now / "birch").values())


def test_the_honest_way_works_and_joining_again_changes_no_key(world):
    world.back_to("kits")
    sent = {site: world.join(site) for site in SITES}
    assert sent == {site: world.join(site) for site in SITES}
    world.seal()
    for site in SITES:
        world.accept(site)
        world.accept(site)
    assert world.join() == sent["alder"]
    assert world.join("alder", "--new-keys")["key"] != sent["alder"]["key"]


def test_after_a_crash_in_mid_join_the_same_command_works(world):
    world.back_to("kits")
    with world.at("alder") as folder:
        run = subprocess.Popen([sys.executable, "-m", "fedcal", *JOIN], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while run.poll() is None and not keys_in(folder) and time.monotonic() < deadline:
            time.sleep(0.005)
        run.send_signal(signal.SIGKILL)
        run.wait(30)
    sent = world.join()
    (world.now / "alder" / "alder.join").unlink()  # and where it stopped just before the end
    assert world.join() == sent


def read_out(true, other):
    """Lines that say that an output is of another study, but for one with a whole public key."""
    told = difflib.ndiff(true.splitlines(), other.splitlines())
    changed = [line[2:] for line in told if line[:2] == "- "]
    return [x for x in changed if not ("key" in x and re.search(r"([0-9a-f]{4} ){8}", x))]


def others_connection(fields):
    fields["connections"]["birch"] = connection()[1]


def other_authority(fields):
    fields["authority"] *= 2


def without_words(said, true):
    """Whether a site accepts it, and hears nothing that it could compare."""
    return said.code == 0 and not read_out(true, said.out)


def test_whoever_seals_the_study_anew_changes_what_people_read_out(world):
    true = world.back_to("sealed").accept()
    world.back_to("sealed")
    said = world.accepts(file=world.sealed_by(SigningKey.generate()))
    assert not without_words(said, true), "the coordinator's key is not in it"


@pytest.mark.parametrize("change", [others_connection, other_authority])
def test_what_a_coordinator_tells_one_site_alone_changes_what_people_read_out(world, change):
    true = world.back_to("sealed").accept()
    world.back_to("sealed")
    path = world.forge(change)
    (world.kit() / "ca.crt").write_text(json.loads(path.read_text("utf-8"))["authority"])
    assert not without_words(world.accepts(file=path), true), "it is not in it"


def test_twelve_words_are_read_out_the_same_everywhere(world):
    told = [world.back_to("joined").seal(), *map(world.accept, SITES)]
    world.back_to("joined").join("birch", "--new-keys")
    world.seal()
    spoken = re.findall(r"\b[a-z]{3,}\b", " ".join(read_out(told[1], world.accept())))
    assert len(spoken) >= 12, spoken
    assert all(word in re.findall("[a-z]+", out) for out in told for word in spoken)
    page = (world.kit() / "read-me.html").read_text("utf-8")
    assert "another site" in " ".join(page.split())


@pytest.mark.parametrize("when", NO_DATES, ids=ascii)
def test_a_date_that_is_none_is_refused(world, when):
    world.back_to("sealed")
    path = world.forge(lambda fields: fields.update(when=when))
    world.is_refused("alder", "site", "accept", "alder", path, "--yes", naming=("when", "date"))


def of_now(fields):
    fields["when"] = datetime.datetime.now(datetime.UTC).isoformat()


def test_an_older_study_is_refused_whatever_date_it_says(world):
    old = world.back_to("accepted").sealed.read_text("utf-8")
    world.join("birch", "--new-keys")
    world.seal()
    world.accept()
    path = world.forge(of_now, old)
    world.is_refused("alder", "site", "accept", "alder", path, "--yes")


def test_another_study_of_the_same_number_is_refused(world):
    world.back_to("accepted")
    path = world.forge(lambda fields: (others_connection(fields), of_now(fields)))
    world.is_refused("alder", "site", "accept", "alder", path, "--yes")


def test_a_date_in_the_future_stops_no_later_study(world):
    world.back_to("sealed")
    path = world.forge(lambda fields: fields.update(when=LATER))
    if world.accepts(file=path).code == 0:
        world.join("birch", "--new-keys")
        world.seal()
        world.accept()


def same_key_in_other_letters(line):
    """Base64 whose last bits are no part of the key."""
    kind, text = line.split()[:2]
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    at = len(text.rstrip("=")) - 1
    other = text[:at] + letters[letters.index(text[at]) + 1] + text[at + 1 :]
    assert base64.b64decode(other) == base64.b64decode(text)
    return f"{kind} {other}"


CONNECTIONS = {
    "one key": str,
    "one key, a comment": lambda line: f"{line} cedar@hospital",
    "one key, two spaces": lambda line: line.replace(" ", "  ", 1),
    "one key, other letters": same_key_in_other_letters,
    "no key at all": lambda line: "ecdsa-sha2-nistp384 AAAA",
}


@pytest.mark.parametrize("name", CONNECTIONS)
def test_two_sites_have_two_keys_for_the_server(world, name):
    """Else one of them answers as the other."""
    world.back_to("joined")
    sent = {site: json.loads((world.office / f"{site}.join").read_text()) for site in SITES}
    taken = CONNECTIONS[name](sent["birch"]["connection"])
    own = read_key(keys_in(world.now / "cedar")[sent["cedar"]["key"]])
    text = (world.office / "cedar.join").read_text("utf-8")
    changed = forged(text, "study-join", own, lambda fields: fields.update(connection=taken))
    (world.office / "cedar.join").write_text(changed, "utf-8")
    words = ("study", "seal", "sepsis.toml", *(f"{site}.join" for site in SITES))
    world.is_refused("office", *words, naming=("connection", "key"))
    world.back_to("sealed")
    path = world.forge(lambda fields: fields["connections"].update(cedar=taken))
    words = ("site", "accept", "alder", path, "--yes")
    world.is_refused("alder", *words, naming=("connection", "key"))
