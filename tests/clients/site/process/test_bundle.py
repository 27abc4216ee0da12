"""What a server may bundle: the run config, and nothing else."""

import zipfile
from collections.abc import Mapping
from io import BytesIO

import pytest
from refusals import each_is_refused, refused

from fedcal.clients.site.process import runtime as bundle
from fedcal.clients.site.process.runtime import check_bundle

OURS = {"pyproject.toml": b"[project]", ".info/CONTENT": b"pyproject.toml,0,0"}


def packed(files: Mapping[str, bytes], how: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = BytesIO()
    with zipfile.ZipFile(out, "w", how) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def test_any_other_member_is_refused():
    names = (
        *("hostile.py", "pyproject.toml.py", ".info/hostile.py", "fedcal/__init__.py", "data/x.so"),
        *("../pyproject.toml", "/pyproject.toml", "./pyproject.toml", "PYPROJECT.TOML", "lib/"),
        *("pyproject.toml\\x.py", ".info/CONTENT/x", "\n2026-01-01 answered", "a" * 1000),
    )
    more = [packed({**OURS, name: b"raise SystemExit"}) for name in names]
    # Python's zipfile cuts names at the first zero
    more.append(packed({**OURS, "pyproject.tomlXevil.py": b""}).replace(b"Xevil", b"\0evil"))
    each_is_refused([(one, "bundle contains 3 files") for one in more], check_bundle, most=300)


def test_members_that_are_missing_or_come_twice_are_refused():
    for files in ({}, {"pyproject.toml": b""}, {".info/CONTENT": b""}):
        refused("bundle contains", check_bundle, packed(files))
    out = BytesIO(packed(OURS))
    with zipfile.ZipFile(out, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("pyproject.toml", b"[project.other]")
    refused("bundle contains 3 files", check_bundle, out.getvalue())
    no_zip = (b"", b"PK", b"x" * 99, packed(OURS)[:-9])
    each_is_refused([(content, "bundle") for content in no_zip], check_bundle)


def test_sizes_are_bounded_and_nothing_is_unpacked(monkeypatch):
    bomb = packed({**OURS, "pyproject.toml": bytes(bundle.MOST_BYTES + 1)})
    assert len(bomb) < 20_000
    plain = packed(OURS)
    monkeypatch.delattr(zipfile.ZipFile, "open")
    check_bundle(plain)
    refused("a file in the server's bundle must be", check_bundle, bomb)
    refused("size of a bundle must be", check_bundle, bytes(bundle.MOST_BYTES + 1))
