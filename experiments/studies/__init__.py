"""Experiments of the papers, run again: tables and figures beside what the papers print.

`run.reproduce(NAME)` runs one; `spec.EXPERIMENTS` lists the names. Each is a section of a study
file, one for each paper and one for our own (`maddock.toml`, `luo.toml`, `own.toml`; `spec`
says what stands there); the code that is a paper's own lies in a folder of its name. There are two
kinds:

* **A grid**: `parts` say which methods are run with which settings; each part is a comparison, as
  `fedcal compare` makes it. `plots`, if there are any, are the panels of a figure. `claims` are
  keys of `maddock.claims.CLAIMS`.
* **A function that returns rows**: `rows = "MODULE"` is a module of this package with

      def rows(...) -> list[dict[str, Any]]

  of plain values (text, bool, int, finite float, None). Of the parameters `data` (list of names
  and files), `seeds`, `jobs`, `ray_address` and `progress` (called with rows done and rows in all)
  it gets those that it has; all need defaults. One that can be resumed has `out` (a folder of its
  own, or None; what is unfinished lies in a folder of it, with a `rows.jsonl`) and `resume`.
  `tables` say which of the rows (`where`) stand in which table with which columns. A module may
  also have

      def claims(rows) -> Iterable[spec.RowsClaim]

  and

      def sheet(rows) -> experiments.figures.drawing.Sheet | None

  (the figure). A module of several experiments has a `spec.Study` of these functions for each,
  which `rows = "MODULE:NAME"` names. `rows` has what they share.

To add one: write its section, with the claims that should hold and where, and run
`python -m experiments.studies.expected NAME`, which writes what `--check` expects;
and give its tables a place in the docs by a block of `texts`. Nothing else names it; tests run over
all of them.
"""
