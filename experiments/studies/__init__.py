"""Experiments of the papers, run again: tables and figures beside what the papers print.

`run.reproduce(NAME)` runs one; `spec.EXPERIMENTS` lists the names. Each is a section of a study
file, one for each paper and one for our own (`maddock.toml`, `luo.toml`, `own.toml`; `spec`
says what stands there); the code that is a paper's own lies in a folder of its name. There are two
kinds:

* **A grid**: `parts` say which methods are run with which settings; each part is a comparison, as
  `fedcal compare` makes it. `claims` are keys of `[shared.claims]` of
  `maddock.toml`: comparisons of cells, see `claims.Cell`.
* **A function that returns rows** of plain values (text, bool, int, finite float, None):
  `rows = "MODULE:NAME"` names the `spec.Study` of the function and its claims, in this package. Of
  the parameters `seeds`, `jobs`, `progress` (called with rows done and rows in all) and `options`
  (of the section) it gets those that it has; all but `options` need defaults. `tables` say which
  of the rows (`where`) stand in which table with which columns. `rows` has what studies share.

To add one: write its section, with the claims that should hold and where, and run
`python -m experiments.studies.texts NAME`, which writes what `--check` expects; and give its tables
a place in the docs by a block of `texts`, and the paper's item a line in `[items]`. Nothing else
names it; tests run over all of them.
"""
