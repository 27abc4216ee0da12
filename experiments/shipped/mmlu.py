"""Make the shipped set `mmlu-llama` from published scores of a language model.

Kumar, Lu et al. (2023) asked LLaMA questions of 16 subjects of MMLU (Hendrycks et al. 2021),
each with ten prompts of one worked example. Kept are the probabilities of the four answers under
the first prompt. A client is a subject. Over all subjects the mean confidence is the accuracy, to
a tenth of a point; within single subjects they are up to 16 points apart.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.shipped.making import Arrays, make
from fedcal.storage.npz import read_npz

PROMPT = 0


def shipped(file: Path) -> Arrays:
    """Make the arrays of the data file.

    Parameters
    ----------
    file
        `.npz` with `probs` (10 prompts, n, 4), `labels` (n,), `subject` (n,), the place of each
        row's subject in `subjects` (16,)
    """
    found = read_npz(file)
    probs, labels, subject, names = (found[k] for k in ("probs", "labels", "subject", "subjects"))
    log_p = np.log(probs[PROMPT].astype(np.float64))
    return {
        "logits": (log_p - log_p.max(axis=1, keepdims=True)).astype(np.float16),
        "labels": labels.astype(np.uint8),
        "client": subject.astype(np.uint8),
        "client_names": names,
    }


if __name__ == "__main__":
    inputs = {"scores": "the .npz file with probs, labels, subject and subjects"}
    make(str(__doc__), inputs, shipped)
