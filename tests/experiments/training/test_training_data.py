"""What can be trained on, how it is cut, and one line for each kind of bad input."""

import gzip
import json
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import each_is_refused

from fedcal.core.errors import InputError
from fedcal.experiments.deploy.feature_rows import site_rows
from fedcal.experiments.runs.load import load_any
from fedcal.experiments.runs.load import test_part as part_for_tests
from fedcal.experiments.training.config import TrainConfig
from fedcal.experiments.training.images import read_pool
from fedcal.experiments.training.in_memory import NAME, rows_in_memory
from fedcal.experiments.training.rows import CHARACTERS, CONTEXT, encode, read_text
from fedcal.experiments.training.splits import PARTS, ClientData, load

RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, (200, 6, 6), dtype=np.uint8)
Y = np.arange(200) % 4


def npz(folder: Path, name: str = "data.npz", **arrays: Any) -> str:
    path = folder / name
    np.savez(path, **arrays)
    return str(path)


def dealt(data: str, **options: Any) -> ClientData:
    return load(TrainConfig(data, **options))[0]


def test_every_row_is_in_one_part_of_one_client_and_the_seed_says_which(tmp_path):
    data = npz(tmp_path, x=X, y=Y)
    options: dict[str, Any] = {"clients": 7, "partition": "dirichlet:0.5"}
    a, again, other = (dealt(data, seed=s, **options) for s in (1, 1, 2))
    assert a.clients == 7
    parts = [rows for name in PARTS for rows in a.parts[name]]
    found = [(x.tobytes(), y) for part in parts for x, y in zip(part.x, part.y, strict=True)]
    assert sorted(found) == sorted((x.tobytes(), y) for x, y in zip(X, Y, strict=True))
    of = sum(a.sizes(name) for name in PARTS)
    for name in ("calibration", "test"):
        assert (np.abs(a.sizes(name) - of / 10) <= 0.5).all()
    assert a.fingerprint() == again.fingerprint() != other.fingerprint()
    assert np.array_equal(a.parts["test"][0].x, again.parts["test"][0].x)


def test_natural_clients_keep_their_rows_and_are_left_out_or_cut(tmp_path):
    data = npz(tmp_path, x=X, y=Y, client=np.array(["b", "a"])[np.arange(200) // 150])
    federation = dealt(data)
    assert federation.names == ("a", "b")
    assert [federation.sizes(name).tolist() for name in PARTS] == [[40, 120], [5, 15], [5, 15]]
    assert dealt(data, min_rows=51).names == ("b",)
    federation = dealt(data, max_rows=100)
    assert sum(federation.sizes(name) for name in PARTS).tolist() == [50, 100]
    assert dealt(data, clients=1, seed=3).clients == 1
    with pytest.raises(InputError, match=r"2 natural clients .* but clients = 3"):
        dealt(data, clients=3)


MARK = 7


def _test_rows_of(kind: str, folder: Path) -> str:
    """A file, or a folder, whose test rows alone hold the value `MARK`."""
    train, test = X[:150] // 2 * 2, np.full((50, 6, 6), MARK, np.uint8)  # even numbers and 7
    y, test_y, client = Y[:150], Y[150:], np.arange(150) % 5
    flat, flat_test = train.reshape(150, -1)[:, :4] + 0.0, test.reshape(50, -1)[:, :4] + 0.0
    if kind.startswith("images"):
        who = {"client": client, "test_client": client[:50]} if kind.endswith("clients") else {}
        return npz(folder, x=train, y=y, test_x=test, test_y=test_y, **who)
    if kind == "features":
        arrays = {"features": flat, "y": y, "test_features": flat_test, "test_y": test_y}
        return npz(folder, **arrays, class_names=list("abcd"))
    if kind == "leaf":

        def users(x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
            flat = x.reshape(-1, 36) * 1.0
            return {f"f{k}": {"x": flat[k::5].tolist(), "y": y[k::5].tolist()} for k in range(5)}

        return leaf(folder, train=users(train, y), test=users(test, test_y))
    if kind == "logits":
        return npz(folder, logits=flat, labels=y, test_logits=flat_test, test_labels=test_y)
    path = folder / f"rows.{kind}"
    columns = {f"logit_{k}": np.r_[flat[:, k], flat_test[:, k]] for k in range(4)}
    columns |= {"label": Y, "split": np.repeat(["train", "test"], (150, 50))}
    frame = pytest.importorskip("pandas").DataFrame(columns)
    frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    return str(path)


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("images", "fedavg"),
        ("images of clients", "dp-fedavg"),
        ("features", "fedsgd"),
        ("features", "fedavg"),
        ("leaf", "fedavg"),
        ("leaf", "fedsgd"),
    ],
)
def test_nothing_is_trained_on_a_test_part(tmp_path, kind, method):
    options: dict[str, Any] = {"method": method, "model": "mlp" if kind == "features" else "cnn"}
    options["unit"] = "user" if method == "dp-fedavg" else "example"
    if kind in ("images", "features"):
        options |= {"partition": "iid", "clients": 4}
    data = _test_rows_of(kind, tmp_path)
    made = dealt(data, **options)
    trained = made.shards()
    assert not (trained.inputs == MARK).any()
    assert all((rows.x == MARK).all() for rows in made.parts["test"])
    halved = method == "fedavg" and kind == "leaf"  # the others are for calibration
    assert made.sizes("test").sum() == (25 if halved else 50)


@pytest.mark.parametrize("kind", ["pair", "lists", "tensors", "frame", "file's keys"])
def test_rows_in_memory_are_those_of_a_file(tmp_path, kind):
    x, names = RNG.normal(size=(200, 3)).astype(np.float32), np.array(list("dcab"))
    who, group = np.arange(200) % 5, np.array(["m", "f"])[np.arange(200) % 2]
    file = {
        "features": x,
        "labels": Y,
        "client": who,
        "group": group,
        "class_names": sorted("abcd"),
    }
    asked = TrainConfig(npz(tmp_path, **file), seed=1)
    labels = np.sort(names)[Y]
    given: Any = {"rows": x, "labels": labels, "client": who, "group": group}
    if kind == "pair":
        asked, given = replace(asked, clients=4, partition="iid"), (x, labels[:, None])
    elif kind == "lists":
        given = {key: value.tolist() for key, value in given.items()}
    elif kind == "tensors":
        tensor = pytest.importorskip("torch").from_numpy
        given |= {"rows": tensor(x).requires_grad_(), "labels": tensor(Y), "client": tensor(who)}
        given["class_names"] = np.sort(names)
    elif kind == "frame":
        columns = {0: x[:, 0], 1: x[:, 1], "label": labels, "client": who, "c": x[:, 2]}
        given = pytest.importorskip("pandas").DataFrame(columns | {"group": group})
    else:
        given = file
    found, config = load(replace(asked, data=NAME), rows_in_memory(given))
    wanted, resolved = load(asked)
    assert found.fingerprint() == wanted.fingerprint()
    assert replace(config, data=asked.data) == resolved
    if kind != "pair":
        assert found.group_names == wanted.group_names == ("f", "m")


def test_images_in_memory_and_what_is_refused(tmp_path):
    tests = {"test_rows": X[:20], "test_labels": Y[:20]}
    wanted = read_pool(npz(tmp_path, x=X, y=Y, test_x=X[:20], test_y=Y[:20]))
    pool = rows_in_memory({"rows": X, "labels": Y, **tests, "class_names": list("abcd")})
    assert (pool.kind, pool.names, pool.test is None) == ("image", tuple("abcd"), False)
    np.testing.assert_array_equal(pool.x, wanted.x)
    np.testing.assert_array_equal(pool.judged.y, wanted.judged.y)
    flat = X.reshape(200, -1)  # whole numbers are numbers here
    assert rows_in_memory((flat, Y), feature_norm=1.0).x.dtype == np.float32
    table: list[tuple[Any, str]] = [
        ("rows.npz", "data must be a name, a path, .* got str"),
        ((flat, Y[:5]), "labels: 5 entries for 200 rows"),
        ({"rows": flat}, "one of the arrays 'labels' and 'y' is needed"),
        ({"rows": flat, "labels": Y, "clinet": Y}, "unknown key 'clinet'"),
        ({"rows": X, "labels": Y, "group": Y}, "unknown key 'group'"),
        (
            {"rows": X, "labels": Y, "class_names": ["a", "b"]},
            r"labels: 2 at row 2; must be a class in \[0, 1\]",
        ),
        ((X, Y * 0), "there is one class"),
        (
            {"rows": flat, "labels": list("ab") * 100, "class_names": ["a", "c"]},
            "labels: 'b' at row 1; allowed: a, c",
        ),
        (
            {"rows": flat, "labels": list("ab") * 100, "test_rows": flat, "test_labels": Y},
            r"test_labels: 2 at row 2; must be a class in \[0, 1\]",
        ),
        ({"rows": flat, "features": flat, "labels": Y}, "features has no effect here"),
        ((np.where(flat > 250, np.nan, flat), Y), "all values must be finite"),
        (([[None, 1.0]] * 4, [0, 1, 0, 1]), "rows: a missing value at row 0"),
    ]
    pandas = pytest.importorskip("pandas")
    table += [
        (pandas.DataFrame({"a": [1.0, 2.0]}), "unknown column 'label'"),
        (pandas.DataFrame({"label": [0, 1]}), "no columns of features"),
        (pandas.DataFrame({"a": ["x", "y"], "label": [0, 1]}), "a: must hold numbers"),
    ]
    each_is_refused(table, rows_in_memory)


@pytest.mark.parametrize("kind", ["logits", "csv", "parquet"])
def test_nothing_is_fitted_to_a_test_part(tmp_path, kind):
    data = _test_rows_of(kind, tmp_path)
    loaded = load_any(data).split(0)
    at_site = site_rows(data, list("abcd"))
    for logits in (loaded.scores, at_site.shards.logits):
        assert not (logits == MARK).any()
        assert len(logits) == 150
    assert (at_site.test[0] == MARK).all()
    assert (part_for_tests(loaded, 0).logits == MARK).all()
    assert (loaded.evaluated().scores == MARK).all()


def image_folder(folder: Path, mode: str = "RGB") -> Path:
    image = pytest.importorskip("PIL.Image")
    for name, value in (("cat", 10), ("dog", 200)):
        (folder / name).mkdir(parents=True)
        for k in range(20):
            image.new(mode, (5, 4), value if mode == "L" else (value, k, 0)).save(
                folder / name / f"{k:02}.png"
            )
    return folder


def test_folders_of_images(tmp_path):
    pool = read_pool(str(image_folder(tmp_path / "images")))
    assert (pool.x.shape, pool.x.dtype, pool.classes) == ((40, 4, 5, 3), np.uint8, 2)
    assert pool.y.tolist() == [0] * 20 + [1] * 20
    assert pool.x[23, 0, 0].tolist() == [200, 3, 0]
    more = image_folder(tmp_path / "more")
    with pytest.raises(InputError, match="occurs twice"):
        read_pool(f"{more},{more / 'cat' / '..'}")


def declared(png: bytes, size: int) -> bytes:
    """The file with another width and height in its header."""
    header = b"IHDR" + struct.pack(">II", size, size) + png[24:29]
    return png[:12] + header + struct.pack(">I", zlib.crc32(header)) + png[33:]


def test_bad_folders(tmp_path):
    image = pytest.importorskip("PIL.Image")
    folder = image_folder(tmp_path / "images")
    with pytest.raises(InputError, match="holds no images"):
        read_pool(str(folder / "cat"))
    whole, bad = (folder / "dog" / "00.png").read_bytes(), folder / "dog" / "99.png"

    def written(content: Any) -> None:
        bad.write_bytes(content) if isinstance(content, bytes) else content.save(bad)
        read_pool(str(folder))

    table = [
        (image.new("RGB", (9, 9)), r"dog/99.png is 9 x 9, the first image 5 x 4"),
        (b"no picture", r"dog/99.png is not an intact image"),
        (declared(whole, 60_000), r"dog/99.png is not an intact image"),
        (image.fromarray(np.full((4, 5), 40_000, np.uint16)), r"dog/99.png has more than 8 bits"),
        (whole[:-30], r"dog/99.png is not an intact image"),
    ]
    each_is_refused(table, written)


def test_bad_arrays(tmp_path):
    table: list[tuple[dict[str, Any], str]] = [
        ({"x": X}, "the array 'y' is missing"),
        ({"x": X, "y": Y, "z": Y}, "unknown key 'z'"),
        ({"x": X[0], "y": Y}, r"x: must have shape \(rows, height, width\)"),
        ({"x": X.astype(int), "y": Y}, "x: must be uint8 .* got int64"),
        ({"x": np.full(X.shape, np.nan), "y": Y}, "x: all values must be finite"),
        ({"x": X, "y": Y[1:]}, "y: 199 entries for 200 rows"),
        ({"x": X, "y": Y - 1}, "y: -1 at row 0; must be a class"),
        ({"x": X, "y": np.where(Y == 1, np.nan, 0)}, "y: nan at row 1"),
        ({"x": X, "y": np.where(Y, "a", "b")}, "y: '[ab]' at row 0; must be a class in"),
        ({"x": X, "y": 0 * Y}, "there is one class"),
        ({"x": X, "y": Y, "client": Y / 2}, "client: 0.5 at row 1; must be whole numbers"),
        ({"x": X, "y": Y, "test_x": X}, "the array 'test_y' is missing"),
        ({"x": X, "y": Y, "test_x": X[:, 1:], "test_y": Y}, "test_x: 5 x 6"),
        ({"x": X, "y": Y, "client": Y, "test_x": X, "test_y": Y}, "both or none of them"),
    ]
    path = str(tmp_path / "data.npz")
    each_is_refused(table, lambda arrays: read_pool(npz(tmp_path, **arrays)), repr(path))


def test_other_files_and_pairs(tmp_path):
    (tmp_path / "data.csv").write_text("a,b\n")
    (tmp_path / "data.npz").write_bytes(b"no zip")
    one, two = npz(tmp_path, "1.npz", x=X, y=Y), npz(tmp_path, "2.npz", x=X[:, 1:], y=Y)
    table = [
        (str(tmp_path / "data.csv"), "unknown kind of data"),
        (str(tmp_path / "data.npz"), r"not an intact \.npz"),
        (f"{one},{two}", r"5 x 6 .* and of 6 x 6 .* do not go together"),
        (f"{one},", r"an entry of the list .* is empty"),
    ]
    each_is_refused(table, read_pool)


LINES = ["To be, or not to be: that is the question.", "Whether 'tis nobler in the mind"]


def table(folder: Path, roles: dict[str, int], suffix: str = ".tsv") -> str:
    """A table of two columns; each role says the two lines so many times."""
    said = [f"{role}\t{line}" for role, times in roles.items() for line in LINES * times]
    text = "\n".join(["role\tline", *said, ""]).encode()
    path = folder / f"play{suffix}"
    path.write_bytes(gzip.compress(text) if suffix.endswith("gz") else text)
    return str(path)


def test_characters_are_numbered_as_in_leaf():
    assert len(CHARACTERS) == 80 == len(set(CHARACTERS))
    assert [CHARACTERS[k] for k in encode("Ay, é \U0001f600!")] == list("Ay,    !")


def test_roles_are_clients_whose_characters_are_predicted_once(tmp_path):
    data = table(tmp_path, {"HAMLET": 8, "GHOST": 1, "OPHELIA": 4}, ".tsv.gz")
    federation, config = load(TrainConfig(data, model="lstm"))
    assert federation.names == ("HAMLET", "OPHELIA")  # small ones are left out
    assert (config.partition, config.min_rows) == ("natural", 100)
    assert (federation.classes, federation.shape) == (80, (CONTEXT,))
    spoken = encode("\n".join(LINES * 8))
    predicted = [federation.parts[name][0] for name in PARTS]
    assert np.array_equal(np.concatenate([part.y for part in predicted]), spoken[CONTEXT:])
    before = np.lib.stride_tricks.sliding_window_view(spoken, CONTEXT)[:-1]
    assert np.array_equal(np.concatenate([part.x for part in predicted]), before)


def test_plain_text_has_no_clients(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(LINES * 30))
    federation, config = load(TrainConfig(str(path), model="lstm", clients=4))
    assert (federation.clients, config.partition) == (4, "iid")
    with pytest.raises(InputError, match="names no clients; use --partition iid"):
        dealt(str(path), model="lstm", partition="natural")
    with pytest.raises(InputError, match=r"natural.*or in equal pieces.*not by 'dirichlet:0.1'"):
        dealt(str(path), model="lstm", partition="dirichlet:0.1")
    with pytest.raises(InputError, match="holds texts, which the model cnn does not read"):
        dealt(str(path), model="cnn")


def test_bad_texts(tmp_path):
    def read(file: tuple[str, bytes | None]) -> None:
        (path := tmp_path / file[0]).unlink(missing_ok=True)
        if file[1] is not None:
            path.write_bytes(file[1])
        read_text(str(path))

    table = [
        (("a.tsv", b"line\nTo be\n"), "needs a column that names the client"),
        (("a.tsv", b"role\tline\nHAMLET\n"), "line 2 has 1 columns, not 2"),
        (("a.tsv", b"role\tline\n"), "has no lines"),
        (("a.tsv", b"role\tline\n\xff\t\n"), "is not UTF-8"),
        (("a.tsv.gz", b"no gzip"), "not an intact gzip file"),
        (("a.txt", None), "No such file"),
    ]
    each_is_refused(table, read)


def leaf(folder: Path, **parts: dict[str, Any]) -> str:
    for part, users in parts.items():
        (folder / part).mkdir(parents=True)
        content = {"users": [*users], "num_samples": [], "user_data": users}
        (folder / part / "all_data.json").write_text(json.dumps(content))
    return str(folder)


def test_leaf_clients_keep_their_own_cut(tmp_path):
    def user(rows: int, value: float) -> dict[str, Any]:
        return {"x": [[value] * 16] * rows, "y": [k % 3 for k in range(rows)]}

    train = {"f01": user(20, 0.25), "f02": user(30, 0.5)}
    test = {"f01": user(4, 0.75), "f02": user(5, 1)}
    data = leaf(tmp_path / "images", train=train, test=test)
    federation, config = load(TrainConfig(data))
    assert config.partition == "natural"
    assert federation.names == ("f01", "f02")
    assert [federation.sizes(name).tolist() for name in PARTS] == [[20, 30], [2, 2], [2, 3]]
    assert federation.shape == (4, 4)
    assert {float(v) for v in federation.parts["train"][0].x.ravel()} == {0.25}
    assert {float(v) for v in federation.parts["test"][1].x.ravel()} == {1.0}

    windows = {"x": ["a" * 79 + "b", "b" * 80], "y": ["c", "d"]}
    data = leaf(tmp_path / "texts", train={"HAMLET": windows}, test={"HAMLET": windows})
    federation = dealt(data, model="lstm", min_rows=1)
    assert [CHARACTERS[k] for k in federation.labels("train")] == ["c", "d"]
    assert CHARACTERS[federation.parts["test"][0].x[0, -1]] == "b"


def test_bad_leaf_folders(tmp_path):
    def read(content: str) -> None:
        (tmp_path / "train").mkdir(exist_ok=True)
        (tmp_path / "train" / "all_data.json").write_text(content)
        read_pool(str(tmp_path))

    users: list[tuple[dict[str, Any], str]] = [
        ({"x": [[0.0] * 16] * 2, "y": [1]}, "user 'f01' has 2 x and 1 y"),
        ({"x": [[0.0] * 15], "y": [1]}, "square images"),
        ({"x": [[0.0], [0.0, 1.0]], "y": [1, 0]}, "images of one size"),
        ({"x": [[0.0] * 16], "y": [-1]}, "whole numbers >= 0"),
        ({"x": ["short"], "y": ["a"]}, "each x must be 80 characters"),
        ({"x": []}, "is not JSON as LEAF writes it"),
        ({"x": [], "y": []}, "no rows"),
        ({"x": [[0.0] * 16] * 2, "y": [0, 0]}, "there is one class"),
        ({"x": [[1e39] * 16] * 2, "y": [0, 1]}, "finite numbers"),
    ]
    each_is_refused(
        users, lambda user: read(json.dumps({"users": ["f01"], "user_data": {"f01": user}}))
    )
    said = r"all_data\.json': is not JSON as LEAF writes it"
    each_is_refused([(text, said) for text in ("{", "[" * 200_000, "[]", '{"users": []}')], read)
