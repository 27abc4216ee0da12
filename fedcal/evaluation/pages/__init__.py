"""An evaluation as tables and figures of a report."""
