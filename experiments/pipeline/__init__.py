"""`fedcal pipeline`: training and all that follows it, under one budget and in one report.

`config` reads the file, `rows` says which rows each stage reads, `budget` what each may spend,
`run` does it, and `report` tells it.
"""
