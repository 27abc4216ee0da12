"""Figures of Angelopoulos et al., "Differentially private prediction sets", and peers.

`splits` divides scored rows and judges thresholds on them, `figures` runs what the paper draws,
`peers` sets rules of others (`pcoqs`, `fedcp_qq`) beside it and beside ours.
"""
