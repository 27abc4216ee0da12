"""The coordinator's signature of a quarter's folder: of the SHA-256 of each of its files."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fedcal.core.errors import InputError
from fedcal.experiments.report.page import read_json, reading
from fedcal.experiments.runs.files import to_json
from fedcal.experiments.runs.folders import QUARTER
from fedcal.experiments.study.sealed import signing_text
from fedcal.secure_aggregation import keys
from fedcal.secure_aggregation.keys import SigningKey

SIGNATURE = "signature.json"
_PURPOSE = "study-quarter"


def write_signature(folder: Path, signer: SigningKey) -> None:
    """Sign all files of a quarter in a folder."""
    fields = {"schema": 1, "files": _hashes(folder)}
    made = signer.sign(_PURPOSE, keys.digest(_PURPOSE, signing_text(fields)))
    (folder / SIGNATURE).write_text(to_json({**fields, "signature": made.hex()}), "utf-8")


def check_signature(folder: Path, coordinator: bytes) -> None:
    """InputError unless this key has signed all files of a quarter in a folder as they are."""
    if not (folder / SIGNATURE).exists():
        raise InputError(
            f"{folder} is not signed: fedcal study sign {folder} --key coordinator.pem"
        )
    fields = read_json(folder / SIGNATURE, "signature")
    with reading(folder, SIGNATURE):
        made, text = bytes.fromhex(fields["signature"]), signing_text(fields)
        signed = dict(fields["files"])
    if not keys.verified(coordinator, _PURPOSE, keys.digest(_PURPOSE, text), made):
        raise InputError(f"{folder / SIGNATURE} is not of the coordinator that sealed the study")
    now = _hashes(folder)
    for name in sorted({*signed, *now}):
        if signed.get(name) != now.get(name):
            raise InputError(f"{folder / name} is not the file that was signed")


def _hashes(folder: Path) -> dict[str, str]:
    found = {path.name: path for pattern in QUARTER.files for path in folder.glob(pattern)}
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in sorted(found.items())
        if name != SIGNATURE
    }
