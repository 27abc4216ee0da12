"""The commands of `fedcal`, a module each: a function `command`, whose docstring is its help."""
