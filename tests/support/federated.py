"""Three real sites with a federation, keys and policies of their own, over a `Deployment`."""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
from deployment import Deployment
from numpy.typing import NDArray

from fedcal.secure_aggregation.keys import read_key
from fedcal.secure_aggregation.roster import Roster

POLICY = """\
federation = "{digest}"
expires = {expires}
methods = ["fedoneshot", "fednewton", "fedprior", "evaluate"]
unit = ["example", "subject", "user"]
trust = ["distributed", "central", "secagg"]
adjacency = ["add-remove", "zero-out"]
rounds = 4
exact-sums = true
site-rows = 1000
answers = 2
epsilon-per-run = 1.0
epsilon-total = {total}
delta-per-run = 1e-5
delta-total = 1e-2

[settings]
fedprior = {{ groups = ['{groups}'] }}
evaluate = {{ groups = ['{groups}'], by = ["site"] }}
"""


class Federated(Deployment):
    """A deployment whose sites sum by the protocol, with the committee (3, 2)."""

    def agree(self, name: str = "hearts", file: str = "federation.toml") -> str:
        """Keys, where there are none, and a federation of theirs; its digest."""
        text = f'name = "{name}"\nthreshold = {len(self.sites) // 2 + 1}\n'
        for site in self.sites:
            key = self.folder / f"{site}.pem"
            if not key.exists():
                self.machine.call(["fedcal", "site", "key", key.name], self.env)
            text += f'\n[[site]]\nname = "{site}"\nkey = "{read_key(key).public.hex()}"\n'
        (self.folder / file).write_text(text)
        return Roster.read(self.folder / file).digest

    def member(
        self,
        name: str,
        digest: str,
        *extra: str,
        state: str = "",
        expires: str = "2099-12-31",
        total: float = 100.0,
        file: str = "federation.toml",
        arrays: dict[str, NDArray[Any]] | None = None,
    ) -> Path:
        """Start a site with its policy; its folder."""
        policy = f"{name}-site.toml"
        groups = json.dumps(self.sites)
        text = POLICY.format(digest=digest, expires=expires, total=total, groups=groups)
        (self.folder / policy).write_text(text)
        if state:  # as if the key had answered nothing yet
            extra += ("--key-records", f"{state}.records")
        state = state or f"site-{name}"
        self.site(
            name,
            *("--federation", file, "--sign-key", f"{name}.pem", "--policy", policy),
            *("--state", state, *extra),
            arrays=arrays,
        )
        return self.folder / state

    def start(self, out: str, *more: str) -> subprocess.Popen[str]:
        """A run of all three, told by the federation alone how many they are."""
        return self.fedcal(
            *("deploy", "run", *self.reach, "--federation", "federation.toml", "--out", out, *more)
        )

    def books(self, state: str) -> list[dict[str, Any]]:
        """What a site's ledger shows."""
        words = ["fedcal", "site", "ledger", "--state", state, "--json"]
        jobs: list[dict[str, Any]] = json.loads(self.machine.call(words, self.env))["jobs"]
        return jobs

    def log(self, name: str) -> str:
        return (self.folder / f"site-{name}" / "site.log").read_text("utf-8")

    def together(self) -> Path:
        """A file of all rows, dealt as the sites have them; none are kept back to test on."""
        parts = [dict(np.load(self.folder / f"{name}.npz")) for name in self.sites]
        arrays = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        client = np.repeat(np.arange(len(parts)), [len(part["labels"]) for part in parts])
        test = {f"test_{key}": value for key, value in arrays.items()}
        np.savez(self.folder / "all.npz", **arrays, **test, client=client, test_client=client)
        return self.folder / "all.npz"
