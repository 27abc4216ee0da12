"""A hostile coordinator or carrier of mail: kits that bring more, studies that are sealed anew."""

import base64
import datetime
import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import time

import pytest
from attackers import SITES, World, forged, keys_in, signed, tree

from fedcal.secure_aggregation.keys import SigningKey, read_key

pytestmark = pytest.mark.usefixtures("quick_figures")
JOIN = "site join alder rows.csv"

# What the refusal names, and what a shell does to the kit that comes by mail.
KITS = (
    ("keys", "cp -r $K keys"),
    *(("keys", f"cp -r $K '{name}'") for name in ("Keys", "KEYS", "keys ", "keys\u200b")),
    *((name, f"cp -r $K {name}") for name in ("ｋｅｙｓ", "k\u0435ys", "ke\u0301ys")),
    *(("keys", line) for line in ("mkdir keys", "touch keys", "ln -s $E/new keys")),
    ("keys|link", "ln -s $E/deep keys"),
    ("signing.pem", "cp $K/signing.pem ."),
    ("signing.pem", "touch signing.pem.records"),
    ("keys|home", "cp -r $K keys; ln -s $E home"),
    ("keys|home", "cp -r $K keys; mkdir home; ln -s ../$E/report.html home"),
    ("keys|state", "cp -r $K keys; mkdir state; touch state/records.sqlite"),
    ("keys|override", "cp -r $K keys; touch compose.override.yml"),
    ("keys|rows", "cp -r $K keys; ln -s $E/report.html rows.json"),
    ("home|link", "ln -s $E home"),
    ("state", "mkdir state; touch state/records.sqlite"),
    *((name, f"echo x > {name}") for name in ("site.toml", "federation.toml", "study.sealed")),
    *((name, f"echo x > {name}") for name in (".env", "STUDY.TOML", "alder.join", "rows.csv")),
    ("study", "touch $'\\e[2Jstudy'"),
    ("is well", "touch $'a\\nfedcal: all is well'"),
    ("lmth", "touch $'lmth.\\u202eevil'"),
    *((f"{x}|link", f"mv {x} $E; ln -s $E/{x} .") for x in ("study.toml", "ca.crt")),
    *((f"{x}|link", f"cp {x} $E; ln -f $E/{x} .") for x in ("study.toml", "ca.crt")),
    *((f"{x}|link", f"ln -s $E/report.html {x}") for x in ("start.sh", "compose.yml")),
    *((x, f"rm {x}; mkfifo {x}") for x in ("study.toml", "kit.json", "ca.crt", "read-me.html")),
    *((x, f"rm {x}; mkdir {x}") for x in ("kit.json", "ca.crt")),
    ("alder", "sed -i s,alder,../../elsewhere/alder, kit.json"),
    ("name", "sed -i 's,^alder,\"../alder\",' study.toml"),
    ("server", "sed -i 's,:9092,:9092\\\\nUser=0,' study.toml"),
)

# What another kit does that is laid over the first one, when the site has its keys.
AGAIN = (
    ("keys", "rm -rf keys; cp -r $K keys"),
    ("keys", "cp -r $K KEYS"),
    ("ｋｅｙｓ", "cp -r $K ｋｅｙｓ"),
    ("signing.pem", "cp $K/signing.pem ."),
    ("home|link", "rm -rf home; ln -s $E home"),
    ("study.toml|link", "mv study.toml $E; ln -s $E/study.toml ."),
    ("start.sh|link", "ln -s $E/start.sh ."),
    ("compose.yml|link", "cp compose.yml $E; ln -f $E/compose.yml ."),
    ("ca.crt", "rm ca.crt; mkfifo ca.crt"),
)
DAYS = [("kits", *row) for row in KITS] + [("joined", *row) for row in AGAIN]


@pytest.fixture(scope="module")
def world(tmp_path_factory, quick_figures):
    world = World(tmp_path_factory.mktemp("world"))
    world.begin()
    return world


@pytest.mark.parametrize(("day", "naming", "script"), DAYS)
def test_a_kit_with_anything_but_a_kit_is_refused_and_nothing_is_written(
    world, day, naming, script
):
    world.back_to(day).shell(script, world.kit())
    world.is_refused("alder", JOIN, naming)


def test_keys_are_the_sites_own_and_lie_outside_what_came_by_mail(world):
    sent, own = world.back_to("kits").join(), keys_in(world.now / "alder")
    assert not keys_in(world.kit()), "the coordinator's next kit could bring such files"
    assert sent["key"] in own
    assert len(own) >= 2  # one signs, one connects
    assert {p.stat().st_mode & 0o077 for k in own.values() for p in (k, k.parent)} == {0}


def test_honest_sites_join_and_joining_again_changes_no_key(world):
    world.back_to("kits")
    sent = {site: world.join(site) for site in SITES}
    assert sent == {site: world.join(site) for site in SITES}
    world.seal()
    assert all(world.accept(site) and world.accept(site) for site in SITES)
    assert world.join() == sent["alder"]
    assert world.join("alder", "--new-keys")["key"] != sent["alder"]["key"]


def test_after_a_crash_in_mid_join_the_same_command_works(world):
    folder, words = world.back_to("kits").now / "alder", [sys.executable, "-m", "fedcal"]
    env = {**os.environ, **world.env("alder")}
    before = set(tree(folder))
    run = subprocess.Popen([*words, *JOIN.split()], cwd=folder, env=env, stdout=subprocess.PIPE)
    while run.poll() is None and set(tree(folder)) == before:
        time.sleep(0.002)
    run.kill()
    run.communicate()
    sent = world.join()
    (folder / "alder.join").unlink()  # and where it stopped just before the end
    assert world.join() == sent


# What a later kit lays over the folder of a site that has accepted, and what must not follow.
LATER = (
    ("""echo '{"data": "this:s"}' > rows.json""", "Beautiful is better"),  # any module's function
    ("test ! -f site.toml || sed -i 's,= [14].0$,= 9.0,' site.toml", "epsilon 9"),
)


@pytest.mark.parametrize(("script", "wrong"), LATER, ids=["rows", "rules"])
def test_a_later_kit_brings_neither_code_nor_wider_rules(world, script, wrong):
    world.back_to("accepted").shell(script, world.kit())
    words = [sys.executable, "-m", "fedcal", "site", "start", "alder"]
    env, output = {**os.environ, **world.env("alder")}, ""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(words, cwd=world.now / "alder", env=env, **pipes) as run:
        while "looking for" not in output and (line := run.stdout.readline()):
            output += line
        run.kill()
    assert wrong not in output


def test_a_later_kit_brings_no_yes_that_nobody_gave(world):
    world.back_to("joined").seal()
    for path in (world.root / "accepted" / "alder" / "alder").iterdir():
        if path.is_file() and not (world.kit() / path.name).exists():
            shutil.copy(path, world.kit())
    if world.types("alder", JOIN).code == 0:
        assert "site accept" in world.does("alder", "site status alder")


def read_out(true, other):
    """Lines by which people notice another study, but for one with a whole public key."""
    shown = difflib.ndiff(true.splitlines(), other.splitlines())
    changed = [line[2:] for line in shown if line[:2] == "- "]
    return [x for x in changed if not ("key" in x and re.search(r"([0-9a-f]{4} ){8}", x))]


@pytest.mark.parametrize("name", ["coordinator", "connections", "authority", "roster"])
def test_people_that_compare_notice_another(world, name):
    true = world.back_to("sealed").accept()
    key, fields = SigningKey.generate(), json.loads(world.back_to("sealed").sealed.read_text())
    line = (world.planted / "connection.pub").read_text()
    other = {
        "coordinator": key.public.hex(),
        "connections": fields["connections"] | {"birch": line},
        "authority": fields["authority"] * 2,
        "roster": fields["roster"].replace(world.sent("birch")["key"], key.public.hex()),
    }[name]
    command = world.forge(lambda fields: fields.update({name: other}))
    if name == "coordinator":
        world.forgery.write_text(signed(fields | {name: other}, "study-sealed", key))
    if name == "authority":
        (world.kit() / "ca.crt").write_text(other)  # the kit came from the same coordinator
    output = world.types("alder", command)
    assert output.code == 2 or read_out(true, output.out), "accepted, and the digest is the same"


def test_twelve_words_are_read_out_the_same_everywhere(world):
    shown = [world.back_to("joined").seal(), *map(world.accept, SITES)]
    world.back_to("joined").join("birch", "--new-keys")
    world.seal()
    spoken = re.findall(r"\b[a-z]{3,}\b", " ".join(read_out(shown[1], world.accept())))
    assert len(spoken) >= 12, spoken
    assert all(word in re.findall("[a-z]+", out) for out in shown for word in spoken)
    assert "another site" in " ".join((world.kit() / "read-me.html").read_text("utf-8").split())


@pytest.mark.parametrize("when", ["soon", "2026-13-45", "", 5, None, ["2026"], "zzzz"], ids=ascii)
def test_a_date_that_is_none_is_refused(world, when):
    command = world.back_to("sealed").forge(lambda fields: fields.update(when=when))
    world.is_refused("alder", command, "when|date")


def of_now(fields):
    fields["when"] = datetime.datetime.now(datetime.UTC).isoformat()


def test_an_older_study_is_refused_whatever_date_it_says(world):
    old = world.back_to("accepted").sealed.read_text("utf-8")
    world.join("birch", "--new-keys")
    world.seal()
    world.accept()
    world.is_refused("alder", world.forge(of_now, old))


def test_another_study_of_the_same_number_is_refused(world):
    line = (world.back_to("accepted").planted / "connection.pub").read_text()
    command = world.forge(lambda f: (of_now(f), f["connections"].update(birch=line)))
    world.is_refused("alder", command)


def test_a_date_in_the_future_stops_no_later_study(world):
    later = world.back_to("sealed").forge(lambda fields: fields.update(when="2099-01-01T00:00Z"))
    if world.types("alder", later).code == 0:
        world.join("birch", "--new-keys")
        world.seal()
        world.accept()


def in_other_letters(line):
    """Base64 whose last bits are no part of the key."""
    kind, text = line.split()[:2]
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    at = len(text.rstrip("=")) - 1
    other = text[:at] + letters[letters.index(text[at]) + 1] + text[at + 1 :]
    assert base64.b64decode(other) == base64.b64decode(text)
    return f"{kind} {other}"


SAME_KEY = {
    "as it is": str,
    "with a comment": lambda line: f"{line} cedar@hospital",
    "with two spaces": lambda line: line.replace(" ", "  ", 1),
    "in other letters": in_other_letters,
    "no key": lambda line: "ecdsa-sha2-nistp384 AAAA",
}


@pytest.mark.parametrize("how", SAME_KEY)
def test_two_sites_with_one_key_for_the_server_are_refused_at_each_step(world, how):
    """Else one of them answers as the other."""
    world.back_to("joined")
    taken = SAME_KEY[how](world.sent("birch")["connection"])
    own = read_key(keys_in(world.now / "cedar")[world.sent("cedar")["key"]])
    path = world.office / "cedar.join"
    text = forged(path.read_text(), "study-join", own, lambda f: f.update(connection=taken))
    path.write_text(text)
    command = "study seal sepsis.toml alder.join birch.join cedar.join"
    world.is_refused("office", command, "connection|key")
    command = world.back_to("sealed").forge(lambda f: f["connections"].update(cedar=taken))
    world.is_refused("alder", command, "connection|key")
