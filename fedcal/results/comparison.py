"""A comparison of methods: its lines over seeds, table, verdict, figures and page."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

from fedcal.core import pages
from fedcal.core.pages import Text
from fedcal.metrics import names
from fedcal.metrics.names import named
from fedcal.results import labels, page
from fedcal.results.figures import curves, drawing
from fedcal.results.figures.drawing import Sheet
from fedcal.results.labels import columns_of, family_in
from fedcal.results.simulation import meanings, more, run_again
from fedcal.strategies.settings import settings_of

Row = Mapping[str, Any]
"""One run of a comparison (`fedcal.run.sweep.Row`)."""

Line = dict[str, Any]
"""An entry of `cells` in `compare.json`."""

_SETTING = ("data", "partition", "clients", "unit", "trust", "alpha")
"""Lines that differ in these are not ranked: other data, or another promise."""

_MOST = 3
"""Number of settings whose winners are named."""


def summarise(cell: Any, rows: Sequence[Row]) -> Line:
    """Mean and spread over the seeds of a cell; std is that of a sample (n - 1), 0 for one run.

    Parameters
    ----------
    cell
        `fedcal.run.comparison.grid.Cell`, resolved
    rows
        one for each of its seeds
    """
    c, good = cell.config, [row for row in rows if "error" not in row]
    first: Row = next(iter(good), {"privacy": {}, "communication": {}})
    baseline, alpha = cell.variant.baseline, settings_of(c.method).get("alpha")
    asked = {} if alpha is None else {"alpha": c.set.get("alpha", alpha.default)}
    return {
        "data": c.data,
        "method": c.method,
        "label": cell.variant.label,
        "settings": dict(cell.variant.settings),
        **asked,
        "clients": c.clients if cell.variant.partitioned else None,
        "partition": c.partition if cell.variant.partitioned else None,
        "rounds": 0 if baseline else c.rounds,
        "sampling_rate": None if baseline else c.sampling_rate,
        "epsilon": c.epsilon,
        "delta": None if math.isinf(c.epsilon) else c.delta,
        "unit": None if baseline else c.unit,
        "trust": None if baseline else c.trust,
        "mechanism": None if baseline else first["privacy"].get("mechanism"),
        "noise_std": first["privacy"].get("noise_std"),
        "bytes_up": first["communication"].get("bytes_up_per_client"),
        "bytes_down": first["communication"].get("bytes_down_per_client"),
        "baseline": baseline,
        "seeds": [row["run"]["seed"] for row in good],
        "before": {name: spread(values) for name, values in _over("before", good)},
        "after": {name: {**spread(v), "values": v} for name, v in _over("after", good)},
        "seconds": spread([s for row in good if (s := row["seconds"]) is not None]),
        "failures": [
            {"seed": row["run"]["seed"], "error": row["error"]} for row in rows if "error" in row
        ],
    }


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """Mean and std of a sample; None where there is nothing."""
    if not values:
        return {"mean": None, "std": None}
    std = statistics.stdev(values) if len(values) > 1 else 0.0
    return {"mean": statistics.fmean(values), "std": std}


def _over(part: str, rows: Sequence[Row]) -> Iterable[tuple[str, list[float]]]:
    """Return the metrics of a part, each with its values in all rows that have it."""
    over: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row[part].items():
            over.setdefault(name, []).append(value)
    return over.items()


def headline(lines: Sequence[Line]) -> str:
    """Name the method with the smallest log loss, or sets, over seeds at each epsilon.

    Private methods are ranked where there are any, others only where there are none. Not ranked
    are lines with failed runs, whose means are over other seeds, and collapsed calibrators.

    Parameters
    ----------
    lines
        `cells` of `compare.json`
    """
    family = labels.family_in(lines)
    ranked = [c for c in lines if c["seeds"] and _competes(c)]
    if not ranked:
        return "No method was run to its end with every seed."
    if not family.best:
        return f"{family.what}."
    ranked = [c for c in ranked if math.isfinite(c["epsilon"])] or ranked
    varied = [k for k in _SETTING if len({c.get(k) for c in ranked}) > 1]
    settings: dict[tuple[Any, ...], list[Line]] = {}
    for c in sorted(ranked, key=lambda c: float(c["epsilon"])):
        settings.setdefault((c["epsilon"], *(c[k] for k in varied)), []).append(c)
    plain = {c["data"]: c for c in lines if c["method"] == "none" and c["seeds"]}
    parts = []
    for (epsilon, *facts), every in [*settings.items()][:_MOST]:
        where = "without privacy" if math.isinf(epsilon) else f"at epsilon = {epsilon:g}"
        where = ", ".join([where, *(f"{k} {v}" for k, v in zip(varied, facts, strict=True))])
        if family.covers:
            rivals, none = [*filter(_covers, every)], "no line covers as often as its sets say"
        else:
            rivals, none = [c for c in every if not collapsed(c, lines)], "every line is collapsed"
        won = _won(family, rivals, plain.get(every[0]["data"])) if rivals else none
        parts.append(f"{where} {won}")
    parts += [f"and so on, in {len(settings)} settings"] * (len(settings) > _MOST)
    return f"{family.what}: {'; '.join(parts)}."


COLLAPSED, NO_SKILL = "†", "‡"
MARKS = {
    COLLAPSED: "collapsed: less than a tenth of the resolution (Murphy 1973) before is left, and "
    "its log loss is above that of the pooled fit: it says nearly the same of all rows, and no "
    "calibration error shows that",
    NO_SKILL: "no better than always saying how often each class occurs, by its Brier score",
}
"""Mark of a line -> what it says."""


def collapsed(line: Line, lines: Sequence[Line]) -> bool:
    """Return whether a calibrator says nearly the same of all rows (see `MARKS`)."""
    before, after = (
        line.get(part, {}).get("resolution", {}).get("mean") for part in ("before", "after")
    )
    if before is None or after is None or after >= 0.1 * before:
        return False
    fits = {c["method"]: c for c in lines if c["data"] == line["data"] and c["baseline"]}
    other = fits.get("pooled-temperature", fits.get("none"))
    limit = line["before"] if other is None else other["after"]
    return bool(line["after"]["nll"]["mean"] > limit["nll"]["mean"])


def without_skill(line: Line) -> bool:
    """Return whether the upper end of the Brier skill over the rates of the classes is 0 at most.

    The end is two standard errors over seeds above the mean.
    """
    brier, rates = (line["after"].get(name, {}) for name in ("brier", "uncertainty"))
    if brier.get("mean") is None or rates.get("mean") is None:
        return False
    error = 2 * brier["std"] / math.sqrt(len(line["seeds"]))
    return bool(brier["mean"] - error >= rates["mean"])


def marks_of(line: Line, lines: Sequence[Line]) -> str:
    """Return the marks that a line deserves."""
    return COLLAPSED * collapsed(line, lines) + NO_SKILL * without_skill(line)


def _covers(line: Line) -> bool:
    """Return whether sets reach their stated coverage, within the noise."""
    high, after = line["after"]["coverage_high"]["mean"], line["after"]["coverage"]
    return bool(high + after["std"] >= 1 - line.get("alpha", 1))


def _won(family: labels.Family, rivals: Sequence[Line], plain: Line | None) -> str:
    """Return the winner of a setting, the next one's distance, and the model without either."""
    best, *others = sorted(rivals, key=family.mean)
    text = f"{_name(best, rivals)} ({_value(family, best)}"
    if family.best == "nll" and "brier" in best["after"]:
        text += f", {names.named('brier').title} {best['after']['brier']['mean']:.3g}"
    text += ")"
    if others and len(best["seeds"]) == 1:
        text += " (one seed: the noise is unknown)"
    elif others and _within_noise(family.best, best, others[0]):
        text += f", within the noise of the seeds of {_name(others[0], rivals)}"
        text += f" ({_value(family, others[0])})"
    if plain is not None:
        worse = "" if family.mean(best) < family.mean(plain) else "no better than "
        text += f", {worse}uncalibrated {_value(family, plain)}"
    return text


def _within_noise(metric: str, best: Line, rival: Line) -> bool:
    """Return whether the mean difference, seed by seed, is below its 95 % error (Student's t)."""
    pairs = [(c["seeds"], c["after"][metric].get("values", ())) for c in (best, rival)]
    one, other = (dict(zip(*pair, strict=False)) for pair in pairs)  # shipped lines have no values
    differences = [other[seed] - one[seed] for seed in {*one} & {*other}]
    if (n := len(differences)) < 2:
        return False
    from scipy.special import stdtrit  # slow

    error = float(stdtrit(n - 1, 0.975)) * statistics.stdev(differences) / math.sqrt(n)
    return bool(abs(statistics.fmean(differences)) <= error)


def _name(line: Line, rivals: Sequence[Line]) -> str:
    """Return the line's label, with what distinguishes it from lines of the same label."""
    same = [c for c in rivals if c["label"] == line["label"]]
    facts = [k for k in ("mechanism", "sampling_rate", "rounds") if len({c[k] for c in same}) > 1]
    return ", ".join([line["label"], *(f"{k.replace('_', ' ')} {line[k]}" for k in facts)])


def _value(family: labels.Family, line: Line) -> str:
    return f"{names.scaled(family.best, family.mean(line)):.3g}{names.unit(family.best)}"


_FACTS = (
    *("alpha", "data", "clients", "partition", "sampling_rate", "rounds", "delta", "unit"),
    *("trust", "mechanism"),
)
_WORDS = ("method", "data", "partition", "unit", "trust", "mechanism")
_TITLE = {
    **{"data": "{}", "clients": "{} clients", "partition": "{}", "alpha": "alpha {}"},
    **{"sampling_rate": "sampling rate {}", "unit": "unit {}", "trust": "trust {}"},
}
_RESULTS = ("before", "after", "seeds", "seconds", "failures")
_PARTS = (("before", "before", "mean"), ("mean", "after", "mean"), ("std", "after", "std"))


def as_table(lines: Sequence[Any], metrics: Sequence[str] = ()) -> pages.Table:
    """Return the table of a comparison: for the terminal, Markdown, LaTeX and pages.

    A fact in which lines differ, and which does not follow from method and budget, is a column;
    data, partition, ... of all lines, and the largest delta, are in the title. Among private or
    public lines of one setting the best of a column, and the next within its noise, have a star;
    collapsed calibrators and lines with failed runs, whose means are over other seeds, have none.

    Parameters
    ----------
    metrics
        the columns, alone; () = those of the lines' family, and what a run costs
    """
    columns = labels.columns_of(lines, metrics)
    facts = {k: {line.get(k) for line in lines} - {None} for k in _FACTS}
    facts |= {k: {c.get(k) for c in lines if c.get("delta") is not None} for k in ("unit", "trust")}
    telling = {"alpha", "data", *curves.differing(lines)}
    varied = [k for k, values in facts.items() if len(values) > 1 and k in telling]
    heads = ("method", *(k.replace("_", " ") for k in varied), "epsilon")
    heads += tuple(map(names.column, columns)) + ("bytes up / down", "seconds") * (not metrics)
    alike = {k: _fact(k, *facts[k]) for k in _TITLE if len(facts[k]) == 1}
    title = [_TITLE[k].format(v) for k, v in alike.items() if (k, v) != ("sampling_rate", "1")]
    if "delta" not in varied and (delta := max(facts["delta"], default=0)):
        title.append(f"delta at most {delta:g}")
    runs = max(len(line["seeds"]) + len(line["failures"]) for line in lines)
    title.append(f"mean ± std over {runs} seeds" if runs > 1 else "one seed")
    parting = ("baseline", "epsilon", *(k for k in varied if k not in ("rounds", "mechanism")))
    marked = [(line, marks_of(line, lines)) for line in lines]
    groups = [[*some] for _, some in groupby(marked, lambda p: [p[0].get(k) for k in parting])]
    ranked = bool(labels.family_in(lines).best)
    rows = []
    for group in groups:
        best = _best(group, columns) if ranked else {}
        for line, marks in group:
            failed = f"{len(line['failures'])} of {runs} failed" if line["failures"] else ""
            row: list[pages.Entry] = [pages.Marked(line["label"], mark=marks, small=failed)]
            row += [_fact(k, line.get(k)) for k in varied]
            row.append("" if line["baseline"] else f"{line['epsilon']:g}")
            row += [_spread(metric, line, best) for metric in columns]
            if not metrics:
                up, down, seconds = line["bytes_up"], line["bytes_down"], line["seconds"]["mean"]
                row.append("" if up is None else f"{up:,} / {down:,}")
                row.append("" if seconds is None else f"{seconds:.3f}")
            rows.append(row)
    begin = dict.fromkeys(accumulate(map(len, groups[:-1])), "")
    used = [m for m in MARKS if any(m in marks for _, marks in marked)]
    note = " ".join(f"{m} {MARKS[m]}." for m in used)
    words = tuple(k for k, heading in enumerate(heads) if heading in _WORDS)
    return pages.Table(", ".join(title), heads, rows, note, words, begin)


def _best(group: Sequence[tuple[Line, str]], metrics: Iterable[str]) -> dict[str, list[Line]]:
    """Return the lines that print the best number of a metric, and the next within its noise.

    `group` holds lines with their marks. A line behind one that is outside of the noise is none of
    them, however noisy itself. Where these are all lines there are none.
    """
    best = {}
    rivals = [c for c, marks in group if _competes(c) and COLLAPSED not in marks]
    for m in metrics:
        own = [(names.shown(m, c["after"][m]["mean"]), c) for c in rivals if m in c["after"]]
        own.sort(key=lambda pair: float(pair[0]), reverse=names.named(m).higher)
        beyond = [p for p in own if p[0] != own[0][0] and not _within_noise(m, own[0][1], p[1])]
        best[m] = [c for _, c in own[: own.index(beyond[0])]] if beyond else []
    return best


def _competes(line: Line) -> bool:
    return not line["baseline"] and not line["failures"]


def as_rows(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Return the CSV's content, by column."""
    metrics = list(dict.fromkeys(name for line in lines for name in line["after"]))
    short = names_of(lines)
    return [
        {key: value for key, value in line.items() if key not in _RESULTS}
        | {"data": short[str(line["data"])]}
        | {"runs": len(line["seeds"]), "failed": len(line["failures"])}
        | {
            f"{metric}_{name}": line[part].get(metric, {}).get(of)
            for metric in metrics
            for name, part, of in _PARTS
        }
        | {"seconds_mean": line["seconds"]["mean"], "seconds_std": line["seconds"]["std"]}
        for line in lines
    ]


def _fact(key: str, value: Any) -> str:
    """Return a fact of a line in words; "" for none."""
    if key == "data":
        return Path(value).name
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _spread(metric: str, line: Line, best: Mapping[str, Sequence[Line]]) -> pages.Entry:
    over, runs = line["after"].get(metric, {}), len(line["seeds"])
    if over.get("mean") is None:
        return ""
    mean, std = names.shown(metric, over["mean"]), names.shown(metric, over["std"])
    some = len(over.get("values", range(runs)))  # what ships of a comparison has means alone
    notes = [f"± {std}"] * (some > 1) + [f"[{some} of {runs}]"] * (some != runs)  # drowned
    return pages.Marked(mean, best=line in best.get(metric, ()), small=" ".join(notes))


def finished(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the cells with at least one finished run."""
    return [c for c in cells_of(cells) if c["seeds"]]


def cells_of(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return cells, perhaps of a file, with numbers as budgets; older files have null for inf."""
    return [{**c, "epsilon": float("inf" if c["epsilon"] is None else c["epsilon"])} for c in cells]


def names_of(cells: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Map each data set to a short unique name."""
    sets = list(dict.fromkeys(str(c["data"]) for c in cells))
    short = [Path(data).name for data in sets]
    return {d: name if short.count(name) == 1 else d for d, name in zip(sets, short, strict=True)}


def comparison_sheets(cells: Sequence[Mapping[str, Any]]) -> list[Sheet]:
    """For each data set quality against epsilon, and against bytes."""
    there = _everywhere(cells)
    plotted = family_in(cells).plotted or [m for m in columns_of(cells) if m in there][:4]
    sets = names_of(cells) if plotted else {}
    sheets = []
    for i, (data, name) in enumerate(sets.items(), 1):
        mine = [c for c in cells if str(c["data"]) == data]
        stem, of = ("", "") if len(sets) == 1 else (f"-{i}", f": {name}")
        for by, key, shown in (("epsilon", "epsilon", plotted), ("bytes", "bytes_up", plotted[:2])):
            if not any(not c["baseline"] and c[key] > 0 for c in mine):
                continue
            sheet = curves.quality_sheet(mine, shown, f"Quality against {by}{of}", key)
            (note,) = page.block_lines("comparison", by)
            sheets.append(replace(sheet, name=by + stem, note=note))
    return sheets


COLUMN, SERIES = "column", 8
"""Stem of the figure for a column of a paper (3.18 inches); it has at most so many series."""


def write_column(folder: Path, lines: Sequence[Line], metrics: Sequence[str] = ()) -> None:
    """Write quality against epsilon as a figure for one column of a paper, as PDF and SVG.

    Of more methods than `SERIES` those with the best line by the first metric are shown.
    """
    there, family = finished(lines), family_in(lines)
    first = [c for c in there if c["data"] == there[0]["data"]]
    plotted = [m for m in metrics or [family.best] if m in _everywhere(first)]
    if not plotted or all(c["baseline"] for c in first):
        return
    by, descending = plotted[0], named(plotted[0]).higher
    ranked = sorted(first, key=lambda c: float(c["after"][by]["mean"]), reverse=descending)
    pick = [*dict.fromkeys(c["label"] for c in ranked)][:SERIES]
    some = [c for c in first if c["label"] in pick]
    title = Path(str(first[0]["data"])).stem if len(names_of(there)) > 1 else ""
    sheet = curves.quality_sheet(some, plotted, title)
    seeds = f"± 1 standard deviation over {max(len(c['seeds']) for c in first)} seeds"
    sheet = replace(sheet, columns=1, width=3.18 - drawing.LEFT - drawing.RIGHT)
    sheet = replace(sheet, legend=(*sheet.legend, ("whisker", seeds)))
    drawing.save_sheets({COLUMN: sheet}, folder, (".pdf", ".svg"))


def _everywhere(lines: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the metrics that all lines have."""
    means = [{m for m, of in c["after"].items() if of["mean"] is not None} for c in lines]
    return set.intersection(*means) if means else set()


def comparison_page(comparison: Mapping[str, Any], *where: Path) -> page.Page:
    """Return the page of the content of `compare.json`."""
    every = cells_of(comparison["cells"])
    cells, sets = finished(every), names_of(every)
    best = family_in(cells).best
    counts = page.block_lines(
        "comparison",
        "lines",
        methods=len({c["label"] for c in cells if not c["baseline"]}),
        lines=len(cells),
        ranked=best and named(best).title,
    )
    lines: list[page.Shown] = [Text("", tuple(counts), "plain"), replace(as_table(cells), title="")]
    failures = tuple(
        f"{c['label']} on {curves.in_words({k: c[k] for k in ('data', 'partition', 'epsilon')})}, "
        f"seed {failure['seed']}: {failure['error']}"
        for c in every
        for failure in c.get("failures", ())
    )
    lines += [Text("Runs that failed", failures)] * bool(failures)
    lines.append(meanings(columns_of(cells)))
    statement = Text("", tuple(comparison.get("statement", ())))
    return page.Page(
        "Comparison: " + ", ".join(sets.values()),
        comparison.get("headline", "Methods compared"),
        [
            *comparison_sheets(cells),
            page.Section("All lines", lines),
            page.Section("Privacy", [statement, more(comparison.get("more", ()))]),
            page.Section("Run it again", run_again(*sets, tool="fedcal compare", config={})[:3]),
        ],
        versions=comparison.get("versions", {}),
    )
