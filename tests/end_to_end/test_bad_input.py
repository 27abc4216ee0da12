"""Bad input: one clear line, exit 2, nothing on stdout, nothing written. Failures: exit 1."""

from __future__ import annotations

import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcal.clients.answers
from fedcal.experiments.cli import _run
from fedcal.privacy.ledger import Ledger

pytestmark = pytest.mark.usefixtures("quick_figures")

Disk = dict[str, bytes | None]
"""Path -> content, None for folders."""


def rows(n: int = 120, classes: int = 3) -> dict[str, Any]:
    """Logits and labels without clients of their own."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, classes, n)
    logits = rng.normal(size=(n, classes))
    logits[np.arange(n), labels] += 1.0
    return {"logits": 3 * logits, "labels": labels}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with `data.npz` and `natural.npz` (7 clients) in it."""
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", **rows())
    np.savez("natural.npz", **rows(), client=np.arange(120) % 7)
    return tmp_path


def disk(folder: Path) -> Disk:
    return {
        str(p.relative_to(folder)): None if p.is_dir() else p.read_bytes()
        for p in sorted(folder.rglob("*"))
    }


def without_too_little(err: str) -> list[str]:
    """Lines on stderr, but for the warnings that these few rows and `--overwrite` deserve."""
    expected = ("too little to help", "which is replaced")
    return [line for line in err.splitlines() if not any(words in line for words in expected)]


@pytest.fixture
def refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that must be refused and change nothing; returns its one line."""

    def run(*arguments: str, code: int = 2) -> str:
        before = disk(folder)
        returned = _run(list(arguments))
        out, err = capsys.readouterr()
        assert disk(folder) == before
        assert (returned, out) == (code, "")
        assert err.endswith("\n")
        (line,) = without_too_little(err)
        assert line.startswith("fedcal: error: ")
        assert len(line) > len("fedcal: error: ") + 10
        return str(line)

    return run


# --- options ------------------------------------------------------------------------------------

EPS = "--epsilon 1"
OPTIONS = {
    # what is wrong: (options, words of the message)
    "no such method": ("--method fednoton", "method 'fednoton' mean fednewton nearest"),
    "no such option": ("--bogus 1", "--bogus"),
    "no such engine": ("--engine spark", "engine 'spark' inline"),
    "no such trust": ("--trust nobody", "trust 'nobody' secagg"),
    "no such unit": ("--unit household", "unit 'household' user example"),
    "no such mechanism": ("--mechanism cauchy", "mechanism 'cauchy' auto laplace"),
    "no such noise source": ("--noise-source dice", "noise source 'dice' seeded system"),
    "quorum of nobody": ("--quorum 0.5", "quorum 0.5 no effect distributed"),
    "quorum of the server": (f"--quorum 0.5 --trust central {EPS}", "quorum 0.5 distributed"),
    "1e8 rounds": ("--rounds 100000000", "rounds [1, 100000] 100000000"),
    "1e6 rounds": ("--method acct --rounds 1000000", "rounds [1, 100000] 1000000"),
    "1e8 iterations": ("--method acct --set iterations=100000000", "iterations [1, 99999]"),
    "2e9 clients": ("--clients 2000000000", "clients [1, 10000000] 2000000000"),
    "a clip of nothing": ("--method acct --set clip=2", "clip no effect privacy"),
    "points of no grid": ("--method acct --set points=7", "points no effect golden"),
    "quorum 0": ("--quorum 0", "quorum (0, 1] 0.0"),
    "quorum > 1": ("--quorum 1.5", "quorum (0, 1] 1.5"),
    "quorum nan": ("--quorum nan", "quorum (0, 1] nan"),
    "no such secure aggregation": ("--secure-aggregation tls", "'tls' masks"),
    "no such partition": ("--partition dirichle:1", "partition 'dirichle' iid"),
    "no such data": ("--data resnet", "'resnet' mean resnet110-cifar10 datasets"),
    "an argument too many": ("surplus", "surplus"),
    "an option without its value": ("--method", "--method"),
    "unknown --set key": ("--set clap=1 --method fedtemp", "'clap' fedtemp clip server_lr average"),
    "another method's --set key": ("--set clip=1 --method fedbin", "'clip' bins_exponent"),
    "--set where there is none": ("--set clip=1 --method none", "'clip' none"),
    "not even the ledger by --set": ("--set ledger=x.db --method fedtemp", "'ledger' clip"),
    "--set without =": ("--set clip", "KEY=VALUE 'clip'"),
    "--set without a key": ("--set =1", "KEY=VALUE '=1'"),
    "--set with a list": ("--set server_lr=[1] --method fedtemp", "server_lr a number '[1]'"),
    "epsilon 0": ("--epsilon 0", "epsilon > 0 0.0"),
    "epsilon < 0": ("--epsilon -1", "epsilon > 0 -1.0"),
    "epsilon nan": ("--epsilon nan", "epsilon finite nan"),
    "epsilon -inf": ("--epsilon -inf", "epsilon finite -inf"),
    "epsilon no number": ("--epsilon big", "--epsilon 'big' float"),
    "delta 1": (f"--delta 1 {EPS}", "delta [0, 1) 1.0"),
    "delta > 1": (f"--delta 7 {EPS}", "delta [0, 1) 7.0"),
    "delta < 0": (f"--delta -1e-5 {EPS}", "delta [0, 1) -1e-05"),
    "delta nan": (f"--delta nan {EPS}", "delta [0, 1) nan"),
    "delta > 1 without privacy": ("--delta 7", "delta [0, 1)"),
    "delta 0, fednewton": (f"--delta 0 {EPS}", "delta = 0 Gaussian fedoneshot"),
    "delta 0, fedtemp": (f"--delta 0 {EPS} --method fedtemp", "delta = 0 Gaussian"),
    "delta 0, fedbin": (f"--delta 0 {EPS} --method fedbin", "delta = 0 Gaussian"),
    "delta 0, sampled": (f"--delta 0 {EPS} --sampling-rate 0.5", "delta = 0 Gaussian"),
    "delta above the sampling rate": (f"--delta 0.4 {EPS} --sampling-rate 0.3", "delta rate 0.3"),
    "sampling rate 0": ("--sampling-rate 0", "sampling rate > 0 0.0"),
    "sampling rate 1.5": ("--sampling-rate 1.5", "sampling rate at most 1 1.5"),
    "sampling rate -1": ("--sampling-rate -1", "sampling rate > 0 -1.0"),
    "sampling rate nan": ("--sampling-rate nan", "sampling rate finite nan"),
    "no clients": ("--clients 0", "clients [1, 0"),
    "fewer than no clients": ("--clients -3", "clients [1, -3"),
    "half a client": ("--clients 1.5", "--clients '1.5' integer"),
    "no rounds": ("--rounds 0", "rounds [1, 0"),
    "no rounds, pooled": ("--rounds 0 --method pooled-bbq", "rounds [1, 0"),
    "fedoneshot twice": ("--rounds 2 --method fedoneshot", "fedoneshot 1 2"),
    "seed < 0": ("--seed -1", "seed 2**63 -1"),
    "seed too large": ("--seed 9223372036854775808", "seed 2**63 9223372036854775808"),
    "dropout > 1": ("--dropout 1.5", "dropout [0, 1] 1.5"),
    "dropout nan": ("--dropout nan", "dropout [0, 1] nan"),
    "beta 0": ("--partition dirichlet:0", "beta > 0 0"),
    "beta < 0": ("--partition dirichlet:-0.1", "beta > 0 -0.1"),
    "beta nan": ("--partition dirichlet:nan", "beta finite nan"),
    "beta inf": ("--partition dirichlet:inf", "beta finite inf"),
    "beta no number": ("--partition dirichlet:wide", "dirichlet:BETA dirichlet:wide"),
    "beta missing": ("--partition dirichlet", "dirichlet:BETA"),
    "iid with a parameter": ("--partition iid:3", "iid no parameter iid:3"),
    "natural without clients": ("--partition natural", "data.npz no clients --partition"),
    "natural, shipped": ("--data imdb-binary --partition natural", "imdb-binary no clients"),
    "natural, contradicted": (
        "--data natural.npz --partition natural --clients 8",
        "natural.npz 7 natural clients 8",
    ),
    "secagg with epsilon": (f"--trust secagg {EPS}", "secagg epsilon central"),
    "central without epsilon": ("--trust central", "central epsilon secagg"),
    "distributed without epsilon": ("--trust distributed", "distributed epsilon secagg"),
    "local without epsilon": ("--trust local", "local epsilon secagg"),
    "no noise in shares": (
        f"--trust distributed --mechanism laplace {EPS}",
        "'laplace' shares 'distributed' discrete-laplace discrete-gaussian",
    ),
    "no draw of a sum": (f"--mechanism exponential {EPS}", "'exponential' sum laplace gaussian"),
    "unary, not one-hot": (f"--mechanism unary --trust local {EPS}", "'unary' sum laplace"),
    "central, pooled": ("--trust central --method none", "central epsilon secagg"),
    "a private pool": (f"--method pooled-temperature {EPS}", "pooled-temperature inf"),
    "cap without ledger": (f"--cap 1 {EPS}", "cap --ledger"),
    "cap 0": (f"--ledger l.db --cap 0 {EPS}", "cap > 0 0.0"),
    "cap nan": (f"--ledger l.db --cap nan {EPS}", "cap nan"),
    "ledger without privacy": ("--ledger l.db --cap 1", "ledger --epsilon"),
    "a new ledger without cap": (f"--ledger l.db {EPS}", "l.db cap"),
    "a ledger that is a data set": (f"--ledger data.npz {EPS}", "data.npz not a database"),
    "a ledger that is a folder": (f"--ledger . {EPS}", "ledger . directory"),
    "a ledger in no folder": (f"--ledger no/l.db --cap 1 {EPS}", "no/l.db"),
    "config missing": ("--config none.toml", "none.toml No such file"),
    "config a folder": ("--config .", "config ."),
    "config no TOML": ("--config data.npz", "data.npz not TOML"),
    "out is a file": ("--out data.npz", "data.npz a file"),
    "out below a file": ("--out data.npz/run", "data.npz/run"),
    "rows_per_client 0": (f"--set rows_per_client=0 {EPS}", "rows_per_client > 0 0"),
    "rows_per_client < 0": (f"--set rows_per_client=-5 {EPS}", "rows_per_client > 0 -5"),
    "rows_per_client nan": (f"--set rows_per_client=nan {EPS}", "rows_per_client finite nan"),
    "rows_per_client text": ("--set rows_per_client=many", "rows_per_client number 'many'"),
    "rows_per_client, fedoneshot": (
        f"--set rows_per_client=0 --method fedoneshot {EPS}",
        "rows_per_client > 0 0",
    ),
    "clip 0": (f"--set clip=0 --method fedtemp {EPS}", "clip > 0 0"),
    "clip < 0": (f"--set clip=-1 --method fedtemp {EPS}", "clip > 0 -1"),
    "server_lr 0": ("--set server_lr=0 --method fedtemp", "server_lr > 0 0"),
    "average unknown": ("--set average=median --method fedtemp", "average 'median' inverse"),
    "clip_positive 0": (f"--set clip_positive=0 --method fedbin {EPS}", "clip_positive > 0"),
    "clip_negative true": (f"--set clip_negative=true --method fedbin {EPS}", "clip_negative True"),
    "clipping unknown": ("--set clipping=none --method fedbbq", "clipping 'none' per_class joint"),
    "weighting unknown": ("--set weighting=some --method fedbbq", "weighting 'some' none all"),
    "bins_exponent 0": ("--set bins_exponent=0 --method fedbin", "bins_exponent [1, 16] 0"),
    "bins_exponent 17": ("--set bins_exponent=17 --method fedbbq", "bins_exponent [1, 16] 17"),
    "bins_exponent 6.5": ("--set bins_exponent=6.5 --method fedbbq", "bins_exponent 6.5"),
    "tables unknown": ("--set tables=one --method fedbin", "tables 'one' per_class pooled"),
    "negatives unknown": (f"--set negatives=keep --method fedbbq {EPS}", "negatives 'keep' cut"),
    "proximal < 0": ("--set proximal=-1 --method fedvector", "proximal > 0 -1"),
    "steps 0": ("--set steps=0 --method fedopvector", "steps 0"),
    "clip of vectors 0": (f"--set clip=0 --method fedmatrix {EPS}", "clip > 0 0"),
    "epochs 0": ("--set epochs=0 --method fedcal", "epochs 0"),
    "batch 1.5": ("--set batch=1.5 --method fedcal", "batch 1.5"),
    "lr 0": ("--set lr=0 --method fedcal", "lr > 0 0"),
    "rows_per_client 0 of an entropy's": (
        f"--set rows_per_client=0 --method fednewton-entropy {EPS}",
        "rows_per_client > 0 0",
    ),
    "points 1": ("--set points=1 --method fedoneshot", "points 2 1"),
    "low above high": ("--set low=9 --method fedoneshot", "low below high 9"),
    "low 0": ("--set low=0 --method fedoneshot", "low > 0 0"),
}


@pytest.mark.parametrize(("options", "words"), OPTIONS.values(), ids=OPTIONS.keys())
def test_options(refused: Callable[..., str], options: str, words: str) -> None:
    given = options.split()
    data = () if "--data" in given else ("--data", "data.npz")
    out = () if "--out" in given else ("--out", "deep/down/run")
    line = refused("simulate", *data, *out, *given)
    assert [word for word in words.split() if word not in line] == []


def test_delta_zero_is_fine_without_gaussian_noise(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    private = ["simulate", "--data", "data.npz", "--epsilon", "1", "--delta", "0", "--quiet"]
    assert _run([*private, "--method", "fedoneshot"]) == 0
    out, err = capsys.readouterr()
    assert (out, without_too_little(err)) == ("", [])


@pytest.mark.parametrize("arguments", [("nonsense",), ("--nonsense",), ("apply",)])
def test_commands(refused: Callable[..., str], arguments: tuple[str, ...]) -> None:
    refused(*arguments)


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run([]) == 2
    out, err = capsys.readouterr()
    assert "simulate" in out
    assert err == "fedcal: error: a command is missing\n"


TOML = {
    "unknown key": ('metod = "fedtemp"', "'metod' mean method"),
    "unknown key with a dash": ("sample-rate = 1.0", "'sample-rate'"),
    "text for a number": ('epsilon = "1"', "'epsilon' number '1'"),
    "truth for a number": ("delta = true", "'delta' number True"),
    "number for text": ("method = 3", "'method' text 3"),
    "text for clients": ('clients = "10"', "clients whole '10'"),
    "float for clients": ("clients = 10.0", "clients whole 10.0"),
    "float for rounds": ("rounds = 2.5", "rounds whole 2.5"),
    "truth for seed": ("seed = true", "seed True"),
    "list for data": ('data = ["a"]', "'data' text"),
    "number for set": ("set = 3", "'set' table"),
    "unknown set key": ("[set]\nclap = 1", "'clap' rows_per_client"),
    "list in set": ("[set]\nrows_per_client = [1, 2]", "rows_per_client number"),
    "not TOML": ("method = fedtemp", "c.toml not TOML"),
    "twice": ("seed = 1\nseed = 2", "c.toml not TOML"),
    "zero clients": ("clients = 0", "clients [1, 0"),
    "no secure sum": ('secure_aggregation = "beads"', "secure aggregation 'beads' protocol"),
    "no committee": ('secure_aggregation = "protocol"\ncommittee = "7"', "committee C,T '7'"),
    "sites": ('control = "127.0.0.1:1"', "control needs the engine grpc"),
}


@pytest.mark.parametrize(("text", "words"), TOML.values(), ids=TOML.keys())
def test_config_files(refused: Callable[..., str], text: str, words: str) -> None:
    Path("c.toml").write_text(text)
    line = refused("simulate", "--config", "c.toml", "--out", "run")
    assert [word for word in words.split() if word not in line] == []


def test_a_config_that_is_no_text(refused: Callable[..., str]) -> None:
    Path("c.toml").write_bytes(b"data = '\xff\xfe'")
    assert "c.toml is not TOML" in refused("simulate", "--config", "c.toml")


# --- files --------------------------------------------------------------------------------------


def with_value(key: str, at: Any, value: float) -> dict[str, Any]:
    arrays = rows()
    arrays[key] = np.array(arrays[key], float)
    arrays[key][at] = value
    return arrays


ARRAYS: dict[str, tuple[dict[str, Any], str]] = {
    "a NaN": (with_value("logits", (4, 1), np.nan), "logits nan row 4 finite"),
    "an infinity": (with_value("logits", (5, 2), np.inf), "logits inf row 5 finite"),
    "minus infinity": (with_value("logits", (5, 2), -np.inf), "logits -inf row 5 finite"),
    "a label too large": (with_value("labels", 9, 3), "labels 3 row 9 [0, 2]"),
    "a label below 0": (with_value("labels", 9, -1), "labels -1 row 9 [0, 2]"),
    "half a label": (with_value("labels", 9, 0.5), "labels 0.5 row 9 whole"),
    "too few labels": (rows() | {"labels": [0, 1]}, "labels 2 120"),
    "no labels": ({"logits": rows()["logits"]}, "labels missing"),
    "no scores": ({"labels": [0, 1]}, "logits or probs"),
    "flat logits": ({"logits": np.zeros(4), "labels": np.zeros(4, int)}, "logits (4,)"),
    "one class": ({"logits": np.zeros((4, 1)), "labels": np.zeros(4, int)}, "logits 2"),
    "one row": ({"logits": np.zeros((1, 3)), "labels": [0]}, "1 row split"),
    "text": ({"logits": np.full((4, 2), "x"), "labels": np.zeros(4, int)}, "logits numbers"),
    "an unknown key": (rows() | {"weights": np.ones(120)}, "'weights' logits"),
    "logits and probs": (rows() | {"probs": np.full((120, 3), 1 / 3)}, "logits probs"),
    "probs that do not sum to 1": (
        {"probs": np.full((4, 3), 0.2), "labels": np.zeros(4, int)},
        "probs row 0 0.6",
    ),
    "logits called probs": (
        {"probs": rows()["logits"], "labels": rows()["labels"]},
        "probs [0, 1]",
    ),
    "test rows of other classes": (
        rows() | {"test_logits": np.zeros((4, 5)), "test_labels": np.zeros(4, int)},
        "test_logits 5 3",
    ),
    "test rows without labels": (rows() | {"test_logits": np.zeros((4, 3))}, "test_labels"),
    "clients of another length": (rows() | {"client": [1, 2]}, "client 2 120"),
}


@pytest.mark.parametrize(("arrays", "words"), ARRAYS.values(), ids=ARRAYS.keys())
def test_arrays_of_a_file(refused: Callable[..., str], arrays: dict[str, Any], words: str) -> None:
    np.savez("bad.npz", **arrays)
    line = refused("simulate", "--data", "bad.npz", "--out", "deep/run")
    assert [word for word in ("bad.npz", *words.split()) if word not in line] == []


def object_arrays(path: Path) -> None:
    ragged = np.array([np.zeros(3), np.zeros(2)], dtype=object)
    np.savez(path, logits=ragged, labels=np.array([0, 1]), allow_pickle=True)


def hidden_object_array(path: Path) -> None:
    """A pickle under an otherwise good data set; loading it would run code."""
    np.savez(path, **rows(), client=np.array(["a", None] * 60, dtype=object), allow_pickle=True)


def truncated(path: Path) -> None:
    np.savez(path, **rows())
    path.write_bytes(path.read_bytes()[:-200])


def damaged(path: Path) -> None:
    np.savez(path, **rows())
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0xFF
    path.write_bytes(bytes(data))


def a_huge_promise(path: Path) -> None:
    """A header that declares 8 TB; a reader that trusts it dies."""
    shape = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 3), }"
    header = shape.ljust(117) + b"\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("logits.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + header)


FILES: dict[str, tuple[str, Callable[[Path], Any], str]] = {
    "object arrays": ("bad.npz", object_arrays, "logits objects"),
    "a hidden object array": ("bad.npz", hidden_object_array, "client objects"),
    "truncated": ("bad.npz", truncated, "truncated"),
    "damaged": ("bad.npz", damaged, "damaged"),
    "empty": ("bad.npz", lambda p: p.touch(), "not an intact .npz"),
    "no zip": ("bad.npz", lambda p: p.write_text("hello"), "not an intact .npz"),
    "a bare npy": ("bad.npz", lambda p: p.write_bytes(b"\x93NUMPY\x01\x00"), "not an intact"),
    "a huge promise": ("bad.npz", a_huge_promise, "4 GiB"),
    "a folder": ("bad.npz", lambda p: p.mkdir(), "not a file"),
    "missing": ("bad.npz", lambda p: None, "no such file"),
    "unknown kind": ("bad.xlsx", lambda p: p.write_text("x"), ".npz .csv"),
    "ragged csv": (
        "bad.csv",
        lambda p: p.write_text("label,logit_0,logit_1\n0,1,2\n1,2\n"),
        "line 3 2 cells 3 columns",
    ),
    "csv with text": (
        "bad.csv",
        lambda p: p.write_text("label,logit_0,logit_1\n0,1,two\n"),
        "line 2 logit_1 'two'",
    ),
    "csv with a NaN": (
        "bad.csv",
        lambda p: p.write_text("label,logit_0,logit_1\n0,1,nan\n1,1,1\n"),
        "logits nan row 0",
    ),
    "csv with a label too large": (
        "bad.csv",
        lambda p: p.write_text("label,prob_0,prob_1\n0,.5,.5\n2,.5,.5\n"),
        "labels 2 row 1",
    ),
    "csv with a gap in its columns": (
        "bad.csv",
        lambda p: p.write_text("label,logit_0,logit_2\n0,1,2\n"),
        "logit_1 missing",
    ),
    "csv with strange columns": (
        "bad.csv",
        lambda p: p.write_text("label,a,b\n0,1,2\n"),
        "column 'a' allowed",
    ),
    "csv without rows": (
        "bad.csv",
        lambda p: p.write_text("label,logit_0,logit_1\n"),
        "no rows",
    ),
    "an empty csv": ("bad.csv", lambda p: p.touch(), "empty"),
    "a csv that is no text": ("bad.csv", lambda p: p.write_bytes(b"\xff\xfe\x00"), "UTF-8"),
}


@pytest.mark.parametrize(("name", "write", "words"), FILES.values(), ids=FILES.keys())
def test_files(
    refused: Callable[..., str], name: str, write: Callable[[Path], Any], words: str
) -> None:
    write(Path(name))
    line = refused("simulate", "--data", name, "--out", "deep/run")
    assert [word for word in (name, *words.split()) if word not in line] == []


# --- apply --------------------------------------------------------------------------------------


@pytest.fixture
def fitted(folder: Path) -> str:
    """A calibrator of three classes, fitted on logits."""
    assert _run(["simulate", "--data", "data.npz", "--out", "run", "--quiet"]) == 0
    return str(Path("run", "calibrator.npz"))


def test_apply_refuses_another_class_count(refused: Callable[..., str], fitted: str) -> None:
    np.savez("four.npz", **rows(classes=4))
    line = refused("apply", "--calibrator", fitted, "--data", "four.npz", "--out", "p.npy")
    assert "four.npz has 4 classes" in line
    assert "fitted on 3" in line


@pytest.mark.parametrize("out", ["p.npy", "p.npz", "p.csv"])
def test_apply_refuses_probabilities_for_logits(
    refused: Callable[..., str], fitted: str, out: str
) -> None:
    np.savez("probs.npz", probs=np.full((4, 3), 1 / 3), labels=np.zeros(4, int))
    line = refused("apply", "--calibrator", fitted, "--data", "probs.npz", "--out", out)
    assert "probs.npz holds probs" in line
    assert "fitted on logits" in line


def test_apply_refuses_logits_for_probabilities(refused: Callable[..., str]) -> None:
    np.savez("probs.npz", probs=np.full((8, 3), 1 / 3), labels=np.arange(8) % 3)
    assert _run(["simulate", "--data", "probs.npz", "--out", "run", "--quiet"]) == 0
    line = refused(
        *("apply", "--calibrator", "run/calibrator.npz", "--data", "data.npz", "--out", "p.npy")
    )
    assert "data.npz holds logits" in line


def rewritten(path: str, **changed: Any) -> None:
    with np.load(path) as arrays:
        kept = {**arrays, **changed}
    np.savez(path, **{k: v for k, v in kept.items() if v is not None})


BROKEN: dict[str, tuple[Callable[[str], Any], str]] = {
    "truncated": (lambda p: os.truncate(p, 100), "not an intact"),
    "missing": (os.remove, "No such file"),
    "text": (lambda p: Path(p).write_text("hello"), "not an intact"),
    "a data set": (lambda p: np.savez(p, **rows()), "no fedcal calibrator"),
    "no header": (lambda p: rewritten(p, header=None), "no fedcal calibrator"),
    "a header of objects": (
        lambda p: rewritten(p, header=np.array({"format": 1}, dtype=object)),
        "objects",
    ),
    "a later version": (
        lambda p: rewritten(
            p,
            header=np.array(
                '{"format": "fedcal-calibrator", "version": 99, "kind": "temperature", '
                '"classes": 3, "input": "logits"}'
            ),
        ),
        "version 99",
    ),
    "an unknown kind": (
        lambda p: rewritten(
            p,
            header=np.array(
                '{"format": "fedcal-calibrator", "version": 1, "kind": "oracle", '
                '"classes": 3, "input": "logits"}'
            ),
        ),
        "'oracle'",
    ),
    "no parameter": (lambda p: rewritten(p, temperature=None), "temperature"),
    "a temperature of NaN": (lambda p: rewritten(p, temperature=np.array(np.nan)), "nan"),
    "a temperature of 0": (lambda p: rewritten(p, temperature=np.array(0.0)), "temperature 0"),
}


@pytest.mark.parametrize(("spoil", "words"), BROKEN.values(), ids=BROKEN.keys())
def test_apply_refuses_a_broken_calibrator(
    refused: Callable[..., str], fitted: str, spoil: Callable[[str], Any], words: str
) -> None:
    spoil(fitted)
    line = refused("apply", "--calibrator", fitted, "--data", "data.npz", "--out", "p.npy")
    assert [word for word in ("calibrator.npz", *words.split()) if word not in line] == []


@pytest.mark.parametrize("out", ["p.json", "p", "no/folder/p.npy", "natural.npz/p.npy"])
def test_apply_refuses_an_impossible_out(
    refused: Callable[..., str], fitted: str, out: str
) -> None:
    line = refused("apply", "--calibrator", fitted, "--data", "data.npz", "--out", out)
    assert out in line


def test_apply_refuses_a_folder_as_out(refused: Callable[..., str], fitted: str) -> None:
    Path("p.npy").mkdir()
    assert "p.npy" in refused(
        "apply", "--calibrator", fitted, "--data", "data.npz", "--out", "p.npy"
    )


def test_apply_refuses_nan(refused: Callable[..., str], fitted: str) -> None:
    np.savez("bad.npz", logits=with_value("logits", (4, 1), np.nan)["logits"])
    line = refused("apply", "--calibrator", fitted, "--data", "bad.npz", "--out", "p.npy")
    assert "nan at row 4" in line


# --- a ledger that says no ----------------------------------------------------------------------


def test_a_charge_that_the_ledger_refuses(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    private = ["simulate", "--data", "data.npz", "--ledger", "l.db", "--epsilon", "1", "--quiet"]
    assert _run([*private, "--cap", "1.5"]) == 0
    out, err = capsys.readouterr()
    assert (out, without_too_little(err)) == ("", [])
    assert _run([*private, "--out", "run"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = without_too_little(err)
    assert line.startswith("fedcal: error: ledger l.db: epsilon 1 of 1.5 is spent")
    assert not Path("run").exists()
    with Ledger("l.db") as ledger:
        assert ledger.spent() == (1.0, 1e-5)
        assert len(ledger.entries()) == 1
    assert _run([*private, "--epsilon", "0.5"]) == 0  # what is left can still be spent


@pytest.mark.parametrize("cap", ["1.0", "2.0"])
def test_a_cap_that_is_not_the_ledger_s(
    folder: Path, capsys: pytest.CaptureFixture[str], cap: str
) -> None:
    Ledger("l.db", 1.5).close()
    private = ["simulate", "--data", "data.npz", "--ledger", "l.db", "--epsilon", "1"]
    assert _run([*private, "--cap", cap]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert without_too_little(err) == [f"fedcal: error: ledger l.db has the cap 1.5, not {cap}"]


# --- failures -----------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [(), ("--epsilon", "1")])
@pytest.mark.parametrize("masks", [(), ("--secure-aggregation", "masks")])
def test_when_everybody_drops_out_nothing_is_left(
    refused: Callable[..., str], budget: tuple[str, ...], masks: tuple[str, ...]
) -> None:
    line = refused(
        *("simulate", "--data", "data.npz", "--clients", "20", "--dropout", "1"),
        *("--out", "deep/down/run", *budget, *masks),
        code=1,
    )
    assert "round 1: clients were sampled and none answered" in line


def test_a_failed_run_is_not_charged(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    private = ["simulate", "--data", "data.npz", "--ledger", "l.db", "--epsilon", "1", "--quiet"]
    assert _run([*private, "--cap", "1", "--dropout", "1"]) == 1
    with Ledger("l.db") as ledger:
        assert ledger.spent() == (0.0, 0.0)
        assert ledger.entries() == ()
    assert _run(private) == 0  # the whole cap is there
    with Ledger("l.db") as ledger:
        assert ledger.spent() == (1.0, 1e-5)
        assert ledger.entries()[0].charged == (1, 2, 3, 4)


@pytest.fixture
def earlier(folder: Path, capsys: pytest.CaptureFixture[str]) -> Disk:
    """What a successful run left in `run`."""
    assert _run(["simulate", "--data", "data.npz", "--seed", "1", "--out", "run", "--quiet"]) == 0
    return disk(folder)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--dropout", "1"), 1),
        (("--epsilon", "0"), 2),
        (("--epsilon", "1", "--delta", "0"), 2),
        (("--partition", "natural"), 2),
        (("--set", "rows_per_client=0"), 2),
    ],
)
def test_an_earlier_result_stays_when_a_later_run_fails(
    refused: Callable[..., str], earlier: Disk, arguments: tuple[str, ...], code: int
) -> None:
    start = ("simulate", "--data", "data.npz", "--out", "run")
    refused(*start, "--overwrite", *arguments, code=code)
    assert "--out run holds a run of" in refused(*start)


def test_a_later_run_replaces_an_earlier_one(folder: Path, earlier: Disk) -> None:
    Path("run", "notes.txt").write_text("mine")
    arguments = ["simulate", "--data", "data.npz", "--seed", "2", "--out", "run", "--quiet"]
    assert _run(arguments) == 2
    assert _run([*arguments, "--overwrite"]) == 0
    after = disk(folder)
    assert set(after) == {*earlier, "run/notes.txt"}
    for name in ("result.json", "config.toml", "calibrator.npz", "rounds.jsonl", "test_probs.npy"):
        assert after[f"run/{name}"] != earlier[f"run/{name}"]


class Interrupting:
    """A client statistic that is interrupted when it is asked for the `last` time."""

    def __init__(self, statistic: fedcal.clients.answers.Statistic, last: int) -> None:
        self.statistic, self.last, self.calls = statistic, last, 0

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        if self.calls == self.last:
            raise KeyboardInterrupt
        return self.statistic(*arguments)


@pytest.mark.parametrize("last", [1, 3])
@pytest.mark.parametrize("fresh", [True, False])
def test_an_interrupt_leaves_nothing(
    folder: Path,
    earlier: Disk,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    last: int,
    fresh: bool,
) -> None:
    name = "temperature_newton"
    statistic = Interrupting(fedcal.clients.answers.STATISTICS[name], last)
    monkeypatch.setitem(fedcal.clients.answers.STATISTICS, name, statistic)
    out_folder = "deep/new" if fresh else "run"
    arguments = ["simulate", "--data", "data.npz", "--out", out_folder, "--overwrite"]
    assert _run([*arguments, "--ledger", "l.db", "--cap", "1", "--epsilon", "1"]) == 130
    assert statistic.calls == last
    out, err = capsys.readouterr()
    assert out == ""
    assert without_too_little(err) == ["fedcal: interrupted; nothing was written"]
    with Ledger("l.db") as ledger:  # a round is charged before its answers are added up
        assert ledger.spent()[0] == 1.0
        assert [entry.charged for entry in ledger.entries()] == [tuple(range(1, last + 1))]
    Path("l.db").unlink()
    assert disk(folder) == earlier


class FullDisk:
    """An `os.replace` that fails once, at its `at`-th call (0: always)."""

    def __init__(self, at: int) -> None:
        self.at, self.calls, self.real = at, 0, os.replace

    def __call__(self, source: Any, target: Any) -> None:
        self.calls += 1
        if self.at in (0, self.calls):
            raise OSError(28, "No space left on device")
        self.real(source, target)


KEPT, FILES = 4, 13
"""Files of what is paid for, and of a run: what each move into the folder is one of.

First the calibrator's own three moves (itself, after the round, the outcome) and those into the
folder; then those of what is made of them, which all take the place of files or are new.
"""


def full_at(out: str, at: int, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    monkeypatch.setattr(os, "replace", FullDisk(at))
    start = ("simulate", "--data", "data.npz", "--method", "fedoneshot", "--overwrite")
    return (*start, "--out", out)


@pytest.mark.parametrize(
    ("out", "at"),
    [
        *(("deep/down/new", at) for at in (0, 1, 3, 4, KEPT + 3)),
        *(("run", at) for at in (0, 1, 3, FILES, FILES + 3, FILES + KEPT + 3)),
    ],
)
def test_a_full_disk_leaves_everything_as_it_was(
    refused: Callable[..., str],
    earlier: Disk,
    monkeypatch: pytest.MonkeyPatch,
    out: str,
    at: int,
) -> None:
    arguments = full_at(out, at, monkeypatch)
    assert "No space left on device" in refused(*arguments, code=1)


@pytest.mark.parametrize("more", [1, 2, KEPT, FILES])
@pytest.mark.parametrize(("out", "moved"), [("deep/new", KEPT), ("run", FILES + KEPT)])
def test_a_disk_that_is_full_later_has_what_was_paid_for(
    folder: Path, earlier: Disk, monkeypatch: pytest.MonkeyPatch, out: str, moved: int, more: int
) -> None:
    assert _run([*full_at(out, 3 + moved + more, monkeypatch)]) == 1
    kept = {"calibrator.npz", "config.toml", "outcome.json", "round-1.npz"}
    assert set(os.listdir(out)) == kept
    assert _run(["report", out]) == 0
    assert len(os.listdir(out)) == FILES


def test_these_are_all_the_moves(earlier: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    for out, gone in (("deep/new", 0), ("run", FILES)):
        arguments = full_at(out, -1, monkeypatch)
        assert _run([*arguments, "--quiet"]) == 0
        assert len(os.listdir(out)) == FILES
        # the calibrator's and the report's own are two
        assert os.replace.calls == 3 + gone + KEPT + 2 + KEPT + FILES  # type: ignore[attr-defined]


def test_a_full_disk_stops_apply(
    refused: Callable[..., str], fitted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("p.npy").write_bytes(b"what was there")
    monkeypatch.setattr(os, "replace", FullDisk(0))
    arguments = ("apply", "--calibrator", fitted, "--data", "data.npz", "--out", "p.npy")
    assert "p.npy is there" in refused(*arguments)
    line = refused(*arguments, "--overwrite", code=1)
    assert "No space left on device" in line


def test_too_little_memory_is_said_in_one_line(
    refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def hungry(*_: Any) -> Any:
        raise MemoryError((10**15,))

    monkeypatch.setitem(fedcal.clients.answers.STATISTICS, "temperature_newton", hungry)
    assert "memory" in refused("simulate", "--data", "data.npz", "--out", "deep/run", code=1)
