"""Reader of `.parquet`: columns by name as in `.csv`, or lists of scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedcal.core.errors import InputError
from fedcal.core.optional import need
from fedcal.datasets._arrow import BATCH, damage, read_batches
from fedcal.datasets._columns import find_columns
from fedcal.storage.npz import MAX_BYTES, intact


def read_parquet(path: Path, labels_required: bool) -> dict[str, Any]:
    """Return arguments for `from_arrays` from a `.parquet` file.

    Columns, in any order: `label`; optional `client`, `subject`, `group` and `split`; and
    `logits` or `probs` with a list of c numbers in each row, or as in a `.csv`: `logit_0 ..`,
    `prob_0 ..`, or `score`; for a second model the same names after `other_`.
    Rows are decoded in batches; dictionaries and decimals are converted to their values.

    Raises InputError, one line: pyarrow is missing, or the file is invalid; rows count from 0.
    """
    pa = need("pyarrow", "parquet", "reading .parquet files")
    pq = need("pyarrow.parquet", "parquet", "reading .parquet files")
    with (
        intact(damage(pa, "an intact .parquet file")),
        path.open("rb") as raw,
        pq.ParquetFile(raw, page_checksum_verification=True) as file,
    ):
        columns = find_columns(file.schema_arrow.names, labels_required, lists=True)
        # not metadata.row_group(k).column(j): if it is damaged, pyarrow ends the process
        if file.metadata.num_rows * len(columns.used) * 8 > MAX_BYTES:
            raise InputError(f"declares more than {MAX_BYTES >> 30} GiB of numbers")
        batches = file.iter_batches(batch_size=BATCH, columns=columns.used)
        return read_batches(pa, batches, columns, labels_required)
