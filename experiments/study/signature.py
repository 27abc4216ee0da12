"""The coordinator's signature of a quarter's folder: of the SHA-256 of each of its files."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fedcal.core.errors import InputError
from fedcal.experiments.study.sealed import check_signed, read_fields, signed_text, write_text
from fedcal.secure_aggregation.keys import SigningKey

SIGNATURE = "signature.json"
_PURPOSE = "study-quarter"


def write_signature(folder: Path, signer: SigningKey) -> None:
    """Sign all files of a quarter in a folder."""
    fields = {"schema": 1, "files": _hashes(folder)}
    write_text(folder / SIGNATURE, signed_text(fields, _PURPOSE, signer))


def check_signature(folder: Path, coordinator: bytes) -> None:
    """InputError unless this key has signed all files of a quarter in a folder as they are."""
    path, now = folder / SIGNATURE, _hashes(folder)
    if not path.exists():
        again = f"fedcal study sign {folder} --key coordinator.pem"
        raise InputError(f"{folder} is not signed: {again}")
    fields = read_fields(path)
    check_signed(path, fields, _PURPOSE, coordinator, ["files"])
    for name in sorted({*now, *fields["files"]}):
        if fields["files"].get(name) != now.get(name):
            raise InputError(f"{folder / name} is not the file that was signed")


def _hashes(folder: Path) -> dict[str, str]:
    files = {path.name: path for path in folder.iterdir() if path.name != SIGNATURE}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
