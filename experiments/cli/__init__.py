"""The commands of `fedcal`, a module each: a function `command` and its `EXAMPLES`."""
