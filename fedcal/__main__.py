"""`python -m fedcal`: the command line."""

from __future__ import annotations

from fedcal.experiments.cli import main

if __name__ == "__main__":
    main()
