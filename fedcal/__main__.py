"""`python -m fedcal`, and the command `fedcal`."""

import warnings


def main() -> None:
    """Run the command line.

    typer imports names of click that click 8.5 deprecates: not the user's to mend, and under
    `python -W error` the end of every command.
    """
    warnings.filterwarnings("ignore", r"'click\..*' is deprecated", DeprecationWarning)
    from fedcal.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
