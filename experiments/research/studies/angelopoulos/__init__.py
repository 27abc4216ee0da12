"""Figures of Angelopoulos et al., "Differentially private prediction sets".

`draws` applies the paper's algorithms to many sets of rows, `splits` divides scored rows and judges
thresholds on them, `figures` runs what the paper draws.
"""
