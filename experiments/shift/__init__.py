"""Domain shift: logits of a network on corrupted images, shipped and of your own benchmark files.

Run as modules: `python -m experiments.shift.mnist` makes the shipped set
`mnist-shift`, `python -m experiments.shift.logits` takes a model over the images of
CIFAR-10-C and its kin.
"""
