"""A study in files, of three hospitals with rows: as far as it has come."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from studies import study

from fedcal.secure_aggregation.keys import SigningKey, read_key
from fedcal.sites.joining import Offer, join, own_folder
from fedcal.sites.kits import make_kits, seal
from fedcal.sites.sealed import Sealed
from fedcal.storage.atomic import write_file

SITES = ("alder", "birch", "cedar")


def table(n: int = 300, seed: int = 1) -> dict[str, list[Any]]:
    """Columns of a file: patients with one to three rows each, of a model that is right."""
    rng = np.random.default_rng(seed)
    patient = np.repeat(np.arange(n), rng.integers(1, 4, n))
    truth = rng.normal(-1.0, 1.5, len(patient))
    event = rng.random(len(patient)) < 1 / (1 + np.exp(-truth))
    return {
        "patient": [f"p{k}" for k in patient],
        "score": (1 / (1 + np.exp(-truth))).round(6).tolist(),
        "label": ["sepsis" if y else "survived" for y in event],
    }


def write_rows(path: Path, columns: dict[str, list[Any]] | None = None) -> Path:
    """The columns as a `.csv`."""
    columns = table() if columns is None else columns
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(columns)
        lines.writerows(zip(*columns.values(), strict=True))
    return path


@dataclass(frozen=True)
class Hospitals:
    """Coordinator and hospitals of a study, in one folder."""

    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "sepsis.toml"

    @property
    def sealed(self) -> Path:
        return self.folder / "sepsis.sealed"

    @property
    def coordinator(self) -> SigningKey:
        return read_key(self.folder / "sepsis-coordinator" / "coordinator.pem")

    def kit(self, site: str = "alder") -> Path:
        return self.folder / "sepsis-kits" / site

    def own(self, site: str = "alder") -> Path:
        """Where a site's keys are."""
        return own_folder("sepsis", site)

    def kits(self, **more: Any) -> list[str]:
        """Write the study's file and the kits; what is said."""
        write_file(self.file, study(",".join(SITES), **more).to_toml())
        return make_kits(self.file)

    def joined(self, **more: Any) -> None:
        """All sites have joined, by the same rows; the working folder is ours."""
        self.kits(**more)
        rows = write_rows(self.folder / "rows.csv")
        for site in SITES:
            join(self.kit(site), str(rows))

    def seal(self) -> Sealed:
        """Enrol all sites."""
        seal(self.file, [self.folder / f"{site}.join" for site in SITES])
        return Sealed.read(self.sealed)

    def offer(self, site: str = "alder") -> Offer:
        return Offer.read(self.kit(site), self.sealed)
