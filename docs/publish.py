"""Put a built version of these pages into the site: `python docs/publish.py BUILT SITE VERSION`.

The site has a folder for each version, `stable` as a copy of the newest that is no pre-release, a
list of all in `versions.html`, which each page's sidebar links, and a start page that leads to
`stable`. The publishing workflow runs it; a second run with the same version replaces that.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from packaging.version import InvalidVersion, Version

PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>fedcal: {title}</title>{head}
<h1>fedcal: {title}</h1><ul>{items}</ul></html>
"""


def versions_in(site: Path) -> list[Version]:
    """Return the versions that the site has, newest first."""
    versions = []
    for folder in site.iterdir():
        try:
            versions.append(Version(folder.name))
        except InvalidVersion:
            continue
    return sorted(versions, reverse=True)


def publish(built: Path, site: Path, version: str) -> None:
    """Copy the pages to `site/version` and write the site's list and start page anew."""
    site.mkdir(parents=True, exist_ok=True)
    replace(built, site / str(Version(version)))
    versions = versions_in(site)
    stable = next((v for v in versions if not v.is_prerelease), versions[0])
    replace(site / str(stable), site / "stable")
    items = "".join(f'<li><a href="{v}/index.html">{v}</a></li>' for v in versions)
    (site / "versions.html").write_text(PAGE.format(title="all versions", head="", items=items))
    leads = '<meta http-equiv="refresh" content="0; url=stable/index.html">'
    items = '<li><a href="stable/index.html">The newest version</a></li>'
    (site / "index.html").write_text(PAGE.format(title="documentation", head=leads, items=items))
    (site / ".nojekyll").touch()  # folders that begin with _ are served too


def replace(source: Path, target: Path) -> None:
    """Copy a folder, in the place of an older one."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(".doctrees", ".buildinfo*"))


if __name__ == "__main__":
    publish(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3].removeprefix("v"))
