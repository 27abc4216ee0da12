"""Commands on the files of a run, and on what ships: they compute no run themselves."""
