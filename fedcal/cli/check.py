"""Check one model's calibration at home: no federation, no release, and Flower is not imported."""

import math
from pathlib import Path

import numpy as np

from fedcal import datasets
from fedcal.cli.parameters import Json, Overwrite, Quiet
from fedcal.clients.questions.scores import ScoreCounts
from fedcal.clients.questions.temperature import TemperatureNewton, local_log_a
from fedcal.core import fitting, naming, pages
from fedcal.evaluation.estimators.calibration import reliability
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.metrics import bootstrap, score_table, summary
from fedcal.results import files, headline, page, terminal
from fedcal.run import folders

BUCKETS, BINS = 240, 10
"""Buckets of the score, and bins of the reliability diagram on the terminal."""


def command(
    data: str,
    *,
    class_names: str | None = None,
    out: Path | None = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Check labelled scores and show a verdict.

    Arguments
    ---------
    data : FILE
        Scores and labels, as --data of the other commands.

    Options
    -------
    class_names
        Names of the classes by comma, in the order of the columns.

    Files and output
    ----------------
    out
        Folder for the report and result.json, readable by this user only.

    Examples
    --------
    fedcal check scores.csv
    fedcal check imdb-binary --out home
    """
    if out is not None:
        folders.claim(out, folders.AT_HOME, overwrite=overwrite)
    called = None if class_names is None else naming.names_in(class_names)
    rows = datasets.load(data, classes=called).evaluated()
    probs, labels, about = rows.probs, rows.labels, {"title": f"{rows.name} at home", "schema": 1}
    shards = rows.shards(np.zeros(len(labels), np.int64), 1)
    question = ScoreCounts(shards.classes, score_table.fine_tails(BUCKETS, nodes=True))
    release = ScoreRelease(question, question.counts_of(shards)[0].astype(np.float64), exact=True)
    release.of_classes(rows.class_names)
    log_a, few = float(local_log_a(shards, 0.0)[0]), shards.size < bootstrap.FEWEST
    g, h = TemperatureNewton(log_a, shards.classes).sums(shards.each_row()).T
    free = not few and abs(log_a) < fitting.LOG_A_LIMIT - 1e-6  # and of an error for any model
    fit = {"log": -log_a, "standard_error": math.sqrt(g @ g) / h.sum()} if free else None
    ends = None if few else bootstrap.metric_intervals(probs, probs, labels)["before"]
    scores = {"scores": summary(probs, labels), "score_intervals": ends, "temperature": fit}
    record = release.results() | {"class_names": rows.class_names and [*rows.class_names]} | scores
    curve = vars(reliability(release.histograms["model", "", ""], BINS))  # x, y, low, high
    facts = {"result": record, "rows": shards, "few": few, "math": math, "error": bootstrap.ERROR}
    facts |= {"headline": headline.headline(record), "measured": headline.measured}
    texts = page.words("check", **facts, bars=np.stack([*curve.values()], axis=1).tolist())
    lines = [line for text in texts.values() for line in text]
    record |= about | {"verdict": " ".join(texts["verdict"]), "statement": texts["statement"]}
    if out is not None:
        parts = [pages.Text(name, texts[name], "plain") for name in ("Metrics", "Federation")]
        kept = record | {"versions": files.versions()}
        folders.AT_HOME.write(out, kept, [*parts, *release.page()], private=True)
        lines.append(f"written to {out}")
    terminal.show(lines, record, json=json, quiet=quiet)
