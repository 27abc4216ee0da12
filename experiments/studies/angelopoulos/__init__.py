"""Figures of Angelopoulos et al., "Differentially private prediction sets".

`splits` applies the paper's algorithms, divides scored rows and judges
thresholds on them, `figures` runs what the paper draws.
"""
