"""`fedcal features`: what a public, pretrained network or table sees in images and texts.

An extractor turns rows into numbers by a map that is fixed before the rows are looked at; so a
model that learns from these numbers with privacy is private for the images and texts themselves.
"""
