"""Does a run keep its promise? Sensitivity, noise and account of real runs, by `experiments.audit`.

`[audit.options]` of the study file names the runs, all at epsilon = 1: `cells`, one for each
mechanism, trust model and unit that go together, then more rounds, sampling, noise of the system;
and `methods`, of which only the worst neighbours are looked for, under each of `units`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
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
CELLS, METHODS = OPTIONS["cells"], OPTIONS["methods"]


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
    attained, asked = max(run.attained), dict.fromkeys(one.query.kind for one in run.asked)
    row = {"method": cell["method"], "mechanism": mechanism.name, "asked": ", ".join(asked)}
    row |= {"trust": plan.trust, "unit": plan.unit, "note": cell.get("note", "")}
    row |= {"attained": attained, "tight": attained >= 0.99, "why": cell.get("why", "")}
    if "seeds" not in cell:
        return row | {"cell": False}
    rate = plan.federation.sampling_rate * plan.row_rate
    taken, possible = np.sum([each for one in runs for each in one.taken], axis=0).tolist()
    row |= check_noise(runs, draws) | {"taken": taken / possible, "spent": run.spent, "cell": True}
    row["p"] = min(1.0, 2.0 * row["p"], 2.0 * float(stats.binomtest(taken, possible, rate).pvalue))
    attacked = mechanism.pure and plan.noise and rate == 1
    row["shown"] = attack(runs, LEVEL) if attacked else None
    return row | {"releases": f"{run.releases} of {plan.rounds}"}


def _audited(progress: Progress | None = None) -> Rows:
    """Return the rows of the cells, then of the methods."""
    return [row_of(cell) for cell in counted([*CELLS, *METHODS], progress)]


def audited_claims(found: Rows) -> Iterator[RowsClaim]:
    """No more than what is promised, nor much less."""
    cells, attained = where(found, cell=True), [row["attained"] for row in found]
    least, spent, ps = ([row[key] for row in cells] for key in ("at_least", "spent", "p"))
    yield "No neighbours differ by more than the bound", max(attained) <= 1, span(attained, ".3f")
    why = [bool(row["why"]) for row in where(found, tight=False)]
    yield "They differ by .99 of it, or the table says why not", all(why), f"{len(why)} do not"
    p = min(1.0, len(cells) * min(ps))
    yield "Noise and sampling have their law", p > LEVEL, f"p of all together: {p:.2g}"
    yield "Noise std is at least .97 of the due (99 %)", min(least) >= 0.97, span(least, ".3f")
    near = all(row["spent"] >= 0.95 * row["attained"] for row in cells) and max(spent) <= 1.001
    yield (
        "Epsilon of all releases is at most 1, at least .95 of `attained`",
        near,
        span(spent, ".3f"),
    )


noise = Study(_audited, audited_claims)
