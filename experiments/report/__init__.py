"""Reports: one self-contained HTML file that reads offline, and figures for papers.

A report is built from the files of a result folder alone, so `fedcal report DIR` gives what
saving the result gave. Everything in those files is untrusted text and escaped; the page loads
nothing, and its Content-Security-Policy forbids it to.
"""

from fedcal.experiments.report.comparison import (
    artifact_card,
    comparison_card,
    result_card,
    write_comparison_report,
)
from fedcal.experiments.report.simulation import (
    write_reading_report,
    write_report,
    write_training_report,
)

__all__ = [
    "artifact_card",
    "comparison_card",
    "result_card",
    "write_comparison_report",
    "write_reading_report",
    "write_report",
    "write_training_report",
]
