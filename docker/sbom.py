"""Write fedcal's bill of materials, a CycloneDX file in JSON, and a list of licences: `make sbom`.

It names fedcal and all that it needs at run time, as installed here: versions and licences are
those of the installed packages, hashes those of the lock file. A release has several files and so
several hashes; pip installed one of them. The packages of a base image are not in it.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def read_lock(path: Path) -> dict[str, tuple[str, list[str]]]:
    """Return each locked package's version and SHA-256 digests, by normalized name."""
    locked: dict[str, tuple[str, list[str]]] = {}
    for name, version, rest in re.findall(
        r"^([\w.-]+)==([^\s;]+)(.*\n(?:    --hash=.*\n)*)", path.read_text("utf-8"), re.MULTILINE
    ):
        locked[canonicalize_name(name)] = version, re.findall(r"--hash=sha256:(\w+)", rest)
    return locked


def needs(package: Distribution, extras: Sequence[str] = ()) -> list[tuple[str, tuple[str, ...]]]:
    """Return the names, with their extras, of what `package` needs on this platform."""
    wanted = map(Requirement, package.requires or ())
    return [
        (canonicalize_name(r.name), tuple(sorted(r.extras)))
        for r in wanted
        if r.marker is None or any(r.marker.evaluate({"extra": e}) for e in ("", *extras))
    ]


def licences(package: Distribution) -> list[dict[str, Any]]:
    """Return what the package says of its licence: an expression, classifiers or a line."""
    metadata = package.metadata
    if expression := metadata.get("License-Expression"):
        return [{"expression": expression}]
    kinds = [c for c in metadata.get_all("Classifier", []) if c.startswith("License :: ")]
    names = [kind.rpartition(" :: ")[2] for kind in kinds] or [metadata.get("License") or ""]
    return [{"license": {"name": n}} for n in names if n and "\n" not in n]


def component(package: Distribution, hashes: Sequence[str]) -> dict[str, Any]:
    """Return the package as a CycloneDX component."""
    name = canonicalize_name(package.metadata["Name"])
    purl = f"pkg:pypi/{name}@{package.version}"
    entry: dict[str, Any] = {"type": "library", "bom-ref": purl, "name": name}
    entry |= {"version": package.version, "purl": purl}
    if hashes:
        entry["hashes"] = [{"alg": "SHA-256", "content": digest} for digest in hashes]
    if licence := licences(package):
        entry["licenses"] = licence
    return entry


def make_sbom(root: str, lock: Mapping[str, tuple[str, list[str]]]) -> dict[str, Any]:
    """Return the bill of materials of `root` and all that it needs.

    Raises
    ------
    SystemExit
        If a package is not installed, or is not the one of the lock file.
    """
    components: dict[str, dict[str, Any]] = {}
    edges: dict[str, set[str]] = {}
    waiting: list[tuple[str, tuple[str, ...]]] = [(root, ())]
    seen = set(waiting)
    while waiting:
        name, extras = waiting.pop()
        try:
            package = distribution(name)
        except PackageNotFoundError:
            raise SystemExit(f"sbom: {name} is not installed") from None
        version, hashes = lock.get(name, ("no such package", [])) if name != root else ("", [])
        if name != root and version != package.version:
            raise SystemExit(f"sbom: {name} {package.version} is installed, locked is {version}")
        components[name] = component(package, hashes)
        wanted = needs(package, extras)
        edges.setdefault(name, set()).update(n for n, _ in wanted)
        waiting += [pair for pair in dict.fromkeys(wanted) if pair not in seen]
        seen.update(wanted)
    refs = {name: entry["bom-ref"] for name, entry in components.items()}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": components.pop(root) | {"type": "application"}},
        "components": [components[name] for name in sorted(components)],
        "dependencies": [
            {"ref": refs[name], "dependsOn": sorted(refs[n] for n in edges[name])}
            for name in sorted(edges)
        ],
    }


def licence_table(sbom: Mapping[str, Any]) -> str:
    """Return the components' names, versions and licences as a Markdown table."""
    lines = ["| package | version | licence |", "|---|---|---|"]
    for part in sbom["components"]:
        names = [
            entry.get("expression") or entry["license"]["name"]
            for entry in part.get("licenses", [])
        ]
        lines.append(f"| {part['name']} | {part['version']} | {', '.join(names) or 'not stated'} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the files that the command line names."""
    parser = argparse.ArgumentParser(description="Write fedcal's bill of materials.")
    parser.add_argument("--lock", type=Path, required=True, help="lock file with the hashes")
    parser.add_argument("--out", type=Path, required=True, help="file to write, in JSON")
    parser.add_argument("--licences", type=Path, help="file to write, a table in Markdown")
    options = parser.parse_args()
    sbom = make_sbom("fedcal", read_lock(options.lock))
    options.out.write_text(json.dumps(sbom, indent=2) + "\n", "utf-8")
    if options.licences:
        options.licences.write_text(licence_table(sbom), "utf-8")
    print(f"{options.out}: fedcal and {len(sbom['components'])} packages")


if __name__ == "__main__":
    main()
