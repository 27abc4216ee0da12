"""The experiments of Luo et al., "Privacy preserving recalibration under domain shift".

A *cell* is one point of a sweep (sources, samples of each, epsilon) on one data set: many random
divisions of its rows into private sources and test rows, and for each of them the test ECE that
every method reaches. `results` runs the cells and sums them up.

Bounds, mechanisms and noise are those of the strategies' own plans, and so are the searches. A
trial costs tens of microseconds a method, because nothing is computed twice: `Tables` holds what
each row gives at each temperature that a search can reach, all trials of a cell go through a
search side by side, and the test ECE is the bin sums of all rows minus those of the fit rows.
"""
