"""Does a run keep its promise? Sensitivity, noise and account of real runs, by `experiments.audit`.

`[audit.options]` of the study file names the runs, all at epsilon = 1: `cells`, one for each
mechanism, trust model and unit that go together, then more rounds, sampling, noise of the system;
and `methods`, of which only the worst neighbours are looked for, under each of `units`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from scipy import stats

from experiments.audit import Run, attack, check_noise, rows_of, watch
from experiments.studies.rows import counted, span, where
from experiments.studies.spec import Record, Rows, RowsClaim, Study, study_file
from fedcal.privacy.privacy import Federation
from fedcal.strategies import STRATEGIES
from fedcal.strategies.server.outcome import Progress

LEVEL = 1e-4
"""Probability at most that noise of the due law, or due sampling, is refused in any cell."""

OPTIONS: Record = study_file("own")["audit"]["options"]
CELLS: Rows = OPTIONS["cells"]
METHODS: Rows = [
    {"method": name, "privacy": privacy, "rounds": 2, **how}
    for name, how in OPTIONS["methods"].items()
    for privacy in OPTIONS["units"][how.get("from", 0) :]
]


def runs_of(cell: Record) -> list[Run]:
    """Return a cell's runs, with a seed each; the first looks for neighbours in some rounds."""
    facts = {"clients": 10, "classes": 3, "epsilon": 1.0, "quorum": 1.0} | cell["privacy"]
    shards = rows_of([(OPTIONS["rows"], ())] * facts["clients"], facts["classes"])
    settings = {"secure_aggregation": "none"} | cell.get("set", {})
    federations = (Federation(**facts, seed=seed) for seed in range(cell.get("seeds", 1)))
    makes = (partial(STRATEGIES[cell["method"]], one, **settings) for one in federations)
    return [watch(make, shards, 0 if k else cell.get("rounds", 1)) for k, make in enumerate(makes)]


def row_of(cell: Record) -> Record:
    """Return the row of a cell, or of a method and a unit."""
    runs, draws = runs_of(cell), cell.get("draws", 0)
    run, plan, mechanism = runs[0], runs[0].plan, runs[0].plan.mechanism
    asked = ", ".join(dict.fromkeys(one.query.kind for one in run.asked))
    row = {"method": cell["method"], "mechanism": mechanism.name, "asked": asked}
    row |= {"trust": plan.trust, "unit": plan.unit, "note": cell.get("note", "")}
    row |= {"attained": max(run.attained), "tight": max(run.attained) >= 0.99}
    row |= {"why": "" if row["tight"] else cell.get("why", "")}
    if "seeds" not in cell:
        return row | {"what": "method"}
    rate = plan.federation.sampling_rate * plan.row_rate
    taken, possible = (sum(getattr(one, name) for one in runs) for name in ("taken", "possible"))
    row |= {"what": "cell", "taken": taken / possible} | check_noise(runs, draws)
    row["p"] = min(1.0, 2.0 * row["p"], 2.0 * float(stats.binomtest(taken, possible, rate).pvalue))
    attacked = mechanism.pure and rate == 1
    row |= {"releases": f"{run.releases} of {plan.rounds}", "spent": run.spent}
    return row | {"shown": attack(runs, draws, LEVEL) if attacked else None}


def _audited(progress: Progress | None = None) -> Rows:
    """Return the rows of the cells, then of the methods."""
    return [row_of(cell) for cell in counted([*CELLS, *METHODS], progress)]


def audited_claims(found: Rows) -> Iterator[RowsClaim]:
    """No more than what is promised, nor much less."""
    cells, attained = where(found, what="cell"), [row["attained"] for row in found]
    least, spent = ([row[key] for row in cells] for key in ("at_least", "spent"))
    far = max(1.0 - row["spent"] / row["attained"] for row in cells)
    p, short = len(cells) * min(row["p"] for row in cells), where(found, tight=False)
    yield "No neighbours differ by more than the bound", max(attained) <= 1, span(attained, ".3f")
    why = all(row["why"] for row in short)
    yield (
        "They differ by .99 of it, or the table says why",
        why,
        f"{len(short)} of {len(found)} less",
    )
    yield "Noise and sampling have their law", p > LEVEL, f"p of all cells: {min(p, 1.0):.2g}"
    text = "Noise has at least .97 of the due standard deviation (99 %)"
    yield text, min(least) >= 0.97, span(least, ".3f")
    text = "Epsilon of what was released is not above 1, and 5 % below the attained sensitivity at most"
    yield text, max(spent) <= 1.001 and far <= 0.05, span(spent, ".3f")


noise = Study(_audited, audited_claims)
