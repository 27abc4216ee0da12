"""What people get, from seeds, as text: `make golden` writes it, `test_golden.py` compares.

Every case types commands in an empty folder and keeps what they print and, of the files, what a
person or a script reads. What differs between two runs by right (seconds, versions, keys, dates,
the folder) is masked.
"""

import contextlib
import csv
import hashlib
import io
import json
import os
import platform
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from fedcal.calibrators import TemperatureScaling
from fedcal.cli.main import COMMANDS
from fedcal.core import fitting
from fedcal.results.figures import drawing
from fedcal.secure_aggregation import roster

GOLDEN = Path(__file__).parents[1] / "golden"
COLUMNS = "110"
MASKED_KEYS = {"seconds", "versions", "python", "run"}
MASKS = (
    (r"\d{4}-\d\d-\d\d(T[\d:.+]+)?", "DATE"),
    (r"\b\d{4}(?: \d{4}){7,}\b|\b[0-9a-f]{4}(?:[ -][0-9a-f]{4}){5,}\b", "DIGEST"),
    (r"(?<![.\w])(?=[0-9]*[a-f])[0-9a-f]{12,}\b", "HEX"),
    (r"\b\d+(\.\d+)? (ms|s|seconds|min)\b", "TIME"),
    (r"(?m)( / [\d,]+ )([│|]) *[\d.]+ [│|]$", r"\1\2 TIME \2"),  # after the bytes of a comparison
    (r"(?m)^fedcal: (?!error|warning).*\n", ""),  # progress
    (r"fedcal \d+\.\d+\.\d+", "fedcal VERSION"),
    (r"Versions: .*", "Versions: MASKED"),
)


def words_of_a_digest(found: re.Match[str]) -> str:
    """Return a mask for 12 words of the list that digests are read from, other text as it is."""
    known = Path(roster.__file__).with_name("words.txt").read_text("ascii").split()
    return "12 WORDS" if set(found[0].split()) <= set(known) else found[0]


def masked(text: str, folder: Path) -> str:
    """Return text without what two runs do not share."""
    text = text.replace(str(folder), "FOLDER")
    text = re.sub(r"([a-z]+ ){11}[a-z]+", words_of_a_digest, text)
    for pattern, name in MASKS:
        text = re.sub(pattern, name, text)
    return "\n".join(line.rstrip() for line in text.splitlines()).strip() + "\n"


def plain(value: Any) -> Any:
    """Return JSON without the values of masked keys."""
    if isinstance(value, dict):
        return {k: "MASKED" if k in MASKED_KEYS else plain(v) for k, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, list) else value


def fedcal(line: str, code: int = 0) -> str:
    """Type a command; return what it prints, on both streams."""
    from fedcal.cli.main import exit_code_of

    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        returned = exit_code_of(line.split())
    if returned != code:
        raise RuntimeError(f"fedcal {line}: exit code {returned}\n{out.getvalue()}")
    return f"$ fedcal {line}\n{out.getvalue()}"


def read_json(path: str) -> str:
    """Return a JSON file, masked and indented."""
    return f"{path}:\n{json.dumps(plain(json.loads(Path(path).read_text())), indent=1)}\n"


def shown(path: str) -> str:
    """Return the text of an HTML page, a line for each piece between two tags."""
    from html_page import page_of

    words = (" ".join(piece.split()) for piece in page_of(Path(path)).words)
    return f"{path}:\n" + "".join(f"{piece}\n" for piece in words if piece)


def axes_in_words(figure: Any) -> Iterator[str]:
    """Return a line for each text of a figure, and for the labels, limits and marks of its axes."""
    yield from (f"text {text.get_text()!r}" for text in figure.texts)
    for ax in figure.axes:
        limits = " ".join(f"{x:.6g}" for x in (*ax.get_xlim(), *ax.get_ylim()))
        yield f"axes {ax.get_xlabel()!r} by {ax.get_ylabel()!r} {ax.get_xscale()} {limits}"
        yield from (f"  text {text.get_text()!r}" for text in ax.texts)
        for mark in (*ax.lines, *ax.patches, *ax.collections):
            paths = mark.get_paths() if hasattr(mark, "get_paths") else [mark.get_path()]
            at = np.concatenate([np.asarray(path.vertices, float) for path in paths])
            at = at[np.isfinite(at).all(axis=1)]
            sums = " ".join(f"{x:.6g}" for x in (*at.sum(axis=0), *np.square(at).sum(axis=0)))
            yield f"  {type(mark).__name__} of {len(at)} at {sums}"


@contextlib.contextmanager
def figures_of(lines: list[str]) -> Iterator[None]:
    """Describe each figure that is drawn meanwhile."""

    def described(sheet: drawing.Sheet, *arguments: Any) -> Any:
        figure = drawing_of(sheet, *arguments)
        lines.extend([f"figure {sheet.title!r}", *axes_in_words(figure)])
        lines.extend(f"said {panel.description}" for panel in sheet.panels)
        return figure

    drawing_of = drawing.draw
    with (
        mock.patch.object(drawing, "draw", described),
        mock.patch.object(drawing, "save_figure", lambda _, path: path.touch()),  # it takes long
    ):
        yield


def write_rows() -> None:
    """Write rows.npz (3 classes, clients, subjects, groups), two.csv and hospitals.csv."""
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 3, 400)
    logits = rng.normal(size=(400, 3))
    logits[np.arange(400), labels] += 1.0
    owner = np.arange(400) % 40
    groups = np.array(["old", "young"])[rng.integers(0, 2, 400)]
    columns = {"client": owner, "subject": np.arange(400) // 2, "group": groups}
    np.savez("rows.npz", logits=3 * logits, labels=labels, **columns)
    lines = []
    for site, patients in {"alder": 300, "birch": 600, "cedar": 1000}.items():
        for patient in range(patients):
            truth = rng.normal(-1.5, 1.3)
            logit = truth - 1.3 if site == "cedar" else truth
            outcome = "sepsis" if rng.random() < 1 / (1 + np.exp(-truth)) else "survived"
            lines.append([f"{1 / (1 + np.exp(-logit)):.6f}", outcome, f"{site}-{patient}", site])
    header = ["score", "label", "subject", "client"]
    for name, kept in [("all", lines), *((s, [r for r in lines if r[3] == s]) for s in SITES)]:
        with Path(f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(
                [header, *kept] if name == "all" else [header[:3], *(row[:3] for row in kept)]
            )


SITES = ("alder", "birch", "cedar")
TRUSTS = {"secagg": "inf", "central": "1", "distributed": "1", "local": "8"}
UNITS = ("user", "subject", "example")
OTHERS = ("--secure-aggregation protocol", "--secure-aggregation none", "--sampling-rate .5")
RUNS = {
    "fedtemp": "--method fedtemp --rounds 3 --epsilon 2",
    "fedopvector": "--method fedopvector --rounds 3 --epsilon 8",
    "fedbbq": "--method fedbbq --set weighting=all --epsilon 8 --unit example",
    "fednewton": "--method fednewton --epsilon 2 --trust distributed --secure-aggregation masks",
    "acct": "--method acct --epsilon 1",
    "dp-histogram": "--method dp-histogram --epsilon 4 --unit example --trust distributed",
    "conformal": "--method conformal --epsilon 8 --unit example",
}
REFUSALS = """simulate --method fednoton
simulate --method json:Nobody
simulate --method nowhere:FedGap
simulate --method json:JSONDecoder
simulate --bogus 1
simulate --engine spark
simulate --epsilon 0
simulate --epsilon nan
simulate --epsilon 1 --trust secagg
simulate --epsilon 1 --delta 0
simulate --epsilon 1 --delta 1.5
simulate --trust local
simulate --clients 0
simulate --clients 0_1
simulate --partition dirichlet:0
simulate --partition dirichle:1
simulate --partition natural --data resnet110-cifar10
simulate --sampling-rate 0
simulate --rounds 0
simulate --unit subject --epsilon 1
simulate --unit patient
simulate --data nowhere.npz
simulate --data resnet
simulate --data bad/nan.npz
simulate --data bad/sum.csv
simulate --data bad/label.csv
simulate --data bad/text.csv
simulate --data bad/na.csv
simulate --data bad/empty.csv
simulate --set clip
simulate --set clip=-1 --epsilon 1
simulate --set bins=3
simulate --method acct --set search=random
simulate --quorum 0.5
simulate --cap 1
simulate --config bad/unknown.toml
simulate --config bad/broken.toml
compare --method fednewton,nothing
compare --seeds 0
evaluate --by ward
evaluate --release nowhere.npz --threshold 0.3
evaluate --threshold 1.5
apply --calibrator nowhere.npz --data rows.npz --out o.csv
apply --calibrator rows.npz --data rows.npz --out o.csv
report nowhere
train --data nowhere.npz --epsilon 1
study init sepsis.toml --sites a,a --classes x,y --server host:1
study init sepsis.toml --sites a,b,c --classes x --server host:1
site join nowhere rows.csv
simulate --data rows.npz --delta 0.4 --epsilon 1 --sampling-rate 0.3
simulate --data rows.npz --partition natural --clients 8
simulate --data rows.npz --method pooled-temperature --epsilon 1
simulate --data rows.npz --ledger l.db --cap 0 --epsilon 1
simulate --data rows.npz --ledger l.db --epsilon 1
simulate --data rows.npz --ledger rows.npz --epsilon 1
simulate --data rows.npz --ledger bad --epsilon 1
simulate --data rows.npz --ledger no/l.db --cap 1 --epsilon 1
simulate --config rows.npz
simulate --data rows.npz --out rows.npz
simulate --data rows.npz --set calibrator=5 --method evaluate
apply --calibrator bad/calibrator.npz --data bad/four.npz --out o.csv
apply --calibrator bad/calibrator.npz --data bad/probs.npz --out o.csv
apply --calibrator bad/calibrator.npz --data rows.npz --out o.json
apply --calibrator bad/calibrator.npz --data rows.npz --out no/o.csv"""


BELOW_ITS_QUORUM = "simulate --clients 10 --trust distributed --epsilon 1 --dropout .6 --out o"


def bad_files() -> None:
    """Write the files that the refusals read."""
    Path("bad").mkdir()
    good = np.load("rows.npz")
    logits = good["logits"].copy()
    logits[7, 1] = np.nan
    np.savez("bad/nan.npz", logits=logits, labels=good["labels"])
    np.savez("bad/four.npz", logits=np.zeros((8, 4)), labels=np.arange(8) % 4)
    np.savez("bad/probs.npz", probs=np.full((8, 3), 1 / 3), labels=np.arange(8) % 3)
    TemperatureScaling(2.0, 3).save("bad/calibrator.npz")
    for name, text in {
        "sum.csv": "label,prob_0,prob_1\n0,.6,.5\n",
        "label.csv": "label,prob_0,prob_1\n2,.5,.5\n",
        "text.csv": "label,score\n0,high\n",
        "na.csv": "label,score,subject\n0,.5,NA\n1,.25,b\n",
        "empty.csv": "label,score\n",
        "unknown.toml": "metod = 'acct'\n",
        "broken.toml": "method = 'acct\n",
    }.items():
        Path("bad", name).write_text(text)


def statements() -> Iterator[tuple[str, str]]:
    """The privacy record of each trust model and unit."""

    def record(trust: str, unit: str, more: str = "") -> Any:
        options = f"--trust {trust} --unit {unit} --epsilon {TRUSTS[trust]} --method fednewton"
        printed = fedcal(f"simulate --data rows.npz --partition natural {options} --json {more}")
        return plain(json.loads(printed[printed.index("{") :])["privacy"])

    for trust in TRUSTS:
        for unit in UNITS:
            yield f"statement-{trust}-{unit}.json", json.dumps(record(trust, unit), indent=1) + "\n"
        others = {more: record(trust, "example", more) for more in OTHERS}
        yield f"statement-{trust}-others.json", json.dumps(others, indent=1) + "\n"


def runs() -> Iterator[tuple[str, str]]:
    """Words and `result.json` of a run of each kind; train, compare and two evaluations."""
    for name, options in RUNS.items():
        output = fedcal(f"simulate --data rows.npz --partition natural {options} --out {name}")
        yield f"{name}.txt", output + read_json(f"{name}/result.json")
        if name in ("fedtemp", "conformal"):
            yield f"{name}-page.txt", shown(f"{name}/report.html")
    hospitals = (
        "evaluate --data all.csv --class-names survived,sepsis --partition natural --unit subject"
    )
    overall = fedcal(f"{hospitals} --epsilon 4 --out overall")
    yield "evaluate.txt", overall + read_json("overall/result.json")
    by_site = fedcal(f"{hospitals} --epsilon 4 --by site --threshold .2 --out by")
    yield "evaluate-by-site.txt", by_site + read_json("by/result.json") + shown("by/report.html")
    options = "--method fednewton,acct,none --epsilon 1,8 --unit user,example --seeds 2"
    output = fedcal(f"compare --data rows.npz --partition natural {options} --out compared")
    table = re.sub(r"(?m)(,[^,\n]*){2}$", "", Path("compared/table.csv").read_text())  # seconds
    page = re.sub(r"(?m)^\d+\.\d{3}$", "TIME", shown("compared/report.html"))
    yield "compare.txt", output + read_json("compared/compare.json") + table + page
    trained = fedcal(
        "train --data mnist-features --model softmax --epsilon 4 --rounds 5 --clients 5 --out t"
    )
    yield "train.txt", trained + read_json("t/training.json")


OTHERS_THAN_CALIBRATE = """compare --method conformal --set alpha=.2 --epsilon 2,8 --unit example
compare --method evaluate --epsilon 2,8 --seeds 2
evaluate --by group --unit example --epsilon 2 --score classes
evaluate --calibrator run/calibrator.npz --by group --unit example --epsilon 4
simulate --method conformal --set by=class --epsilon 8 --unit example
simulate --method pooled-bbq"""


ON_FILES = """--help
datasets
plan --clients 100 --rows-per-client 50 --classes 3 --epsilon 1
report run
compare --out 0 --resume --table markdown
export --calibrator run/calibrator.npz --out run.onnx
export --calibrator 4/sets.npz --out sets.onnx --json"""


def others() -> Iterator[tuple[str, str]]:
    """Runs of other families, and what is made of files: applied, exported, read again."""
    rows = "--data rows.npz --partition natural"
    hospitals = "--data all.csv --class-names survived,sepsis --partition natural --epsilon 4"
    output = [fedcal(f"simulate {rows} --method fedopvector --clients 40 --out run")]
    for number, line in enumerate(OTHERS_THAN_CALIBRATE.splitlines()):
        command, _, options = line.partition(" ")
        output.append(fedcal(f"{command} {rows} {options} --out {number}"))
        if command == "compare":
            output.append(read_json(f"{number}/compare.json"))
        else:
            output.append(shown(f"{number}/report.html"))
    output += [
        fedcal("evaluate --release 3/release.npz --threshold .3"),
        fedcal("apply --calibrator run/calibrator.npz --data rows.npz --out probs.csv"),
        *Path("probs.csv").read_text().splitlines(keepends=True)[:5],
        fedcal("apply --calibrator 4/sets.npz --data rows.npz --out sets.csv"),
        *Path("sets.csv").read_text().splitlines(keepends=True)[:5],
        fedcal(f"evaluate {hospitals} --by site --out sites"),
        fedcal("site recalibrate --release sites/release.npz --site alder alder.csv --out home"),
        shown("home/report.html"),
        fedcal("flower-app app"),
        Path("app/pyproject.toml").read_text(),
        *map(fedcal, ON_FILES.splitlines()),
        *(fedcal(f"{name} --help-all") for name in COMMANDS),
    ]
    yield "others.txt", "".join(output)


def study() -> Iterator[tuple[str, str]]:
    """A study: what coordinator and hospitals see before it runs, and a rehearsed quarter."""
    sites = "alder=300,birch=600,cedar=1000"
    output = [
        fedcal(
            f"study init sepsis.toml --sites {sites} --classes survived,sepsis "
            "--server localhost:9092 --thresholds 0.2"
        ),
        fedcal("study kit sepsis.toml"),
        *(fedcal(f"site join sepsis-kits/{site} {site}.csv") for site in SITES),
        fedcal("study seal sepsis.toml alder.join birch.join cedar.join"),
        *(fedcal(f"site accept sepsis-kits/{site} sepsis.sealed --yes") for site in SITES),
        fedcal("site status sepsis-kits/alder"),
    ]
    yield "study-before.txt", "\n".join(output)
    quarter = fedcal("study run sepsis.toml rehearsal --rehearse all.csv --seed 1")
    yield "study-quarter.txt", quarter + shown("rehearsal/report.html")
    yield "study-quarter.json", read_json("rehearsal/study.json")


def refusals() -> Iterator[tuple[str, str]]:
    """One line of each refusal, which leaves no file."""
    bad_files()
    before = sorted(Path().rglob("*"))
    output = [fedcal(line, code=2) for line in REFUSALS.splitlines()]
    yield "refusals.txt", "".join([*output, fedcal(BELOW_ITS_QUORUM, code=1)])
    if left := {*Path().rglob("*")} - {*before}:
        raise RuntimeError(f"a refused command left {left}")


CASES = {
    "statements": statements,
    "runs": runs,
    "others": others,
    "study": study,
    "refusals": refusals,
}


def written(case: str) -> dict[str, str]:
    """Run a case in an empty folder; return file name -> text."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        here = {"COLUMNS": COLUMNS, "FEDCAL_HOME": str(Path(name, "fedcal"))}
        with (
            mock.patch.dict(os.environ, here),
            mock.patch.object(fitting, "usable_cores", return_value=1),
        ):
            write_rows()
            figures: list[str] = []
            with figures_of(figures):
                found = dict(CASES[case]())
            if figures:
                found[f"figures-{case}.txt"] = "\n".join(figures)
        return {file: masked(text, Path(name)) for file, text in found.items()}


def machine() -> str:
    """Return a digest of what decides the last bits: processor, Python and NumPy."""
    cpu = Path("/proc/cpuinfo")
    model = re.findall(r"model name.*", cpu.read_text()) if cpu.is_file() else []
    facts = (*model[:1], platform.machine(), platform.python_version(), np.__version__)
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16] + "\n"


if __name__ == "__main__":
    for chosen in sys.argv[1:] or CASES:
        for file, text in written(chosen).items():
            (GOLDEN / file).write_text(text, "utf-8")
    (GOLDEN / "machine").write_text(machine())
