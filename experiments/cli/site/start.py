"""Run a site of a federation: it answers a SuperLink's questions about rows that stay here."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from fedcal.core.classes import names_in
from fedcal.core.errors import InputError
from fedcal.experiments.cli.parameters import FILES, Csv, other
from fedcal.experiments.deploy.fleet import read_address
from fedcal.experiments.report.terminal import console

EXAMPLES = (
    "fedcal site --data rows.npz --dry-run",
    "fedcal site --data rows.npz --fleet superlink.example:9092 --root-certificates ca.crt "
    "--key site.key",
)


ROWS, LINK, LIMITS = "Rows", "Connection", "Participation"


def command(
    *,
    data: Annotated[
        str,
        other(
            ROWS,
            "File with scores or features of this site, or module:function that returns "
            "(logits, labels) or a mapping with the keys of a file of scores.",
        ),
    ],
    class_names: Annotated[
        str | None,
        other(
            ROWS, "Comma-separated names of the classes, the same at all sites (default: 0,1,...)."
        ),
    ] = None,
    csv: Csv = None,
    fleet: Annotated[
        str | None, other(LINK, "HOST:PORT of the SuperLink's Fleet API.", "--fleet")
    ] = None,
    root_certificates: Annotated[
        Path | None, other(LINK, "PEM file that verifies the SuperLink's certificate.")
    ] = None,
    key: Annotated[
        Path | None, other(LINK, "Private key of this site: ECDSA, in OpenSSH's format.")
    ] = None,
    wait: Annotated[
        float, other(LINK, "Seconds to wait for a SuperLink to start.", "--wait")
    ] = 60.0,
    policy: Annotated[
        Path | None,
        other(LIMITS, "Policy of this site (site.toml): methods, budgets, contributions in a sum."),
    ] = None,
    federation: Annotated[
        Path | None,
        other(LIMITS, "federation.toml with all sites, for secure aggregation by protocol."),
    ] = None,
    sign_key: Annotated[
        Path | None,
        other(LIMITS, "Signing key of this site in the federation, from fedcal site key."),
    ] = None,
    state: Annotated[
        Path, other(FILES, "Folder of the site: rows, answers, results, logs.")
    ] = Path("fedcal-site"),
    key_records: Annotated[
        Path | None,
        other(
            FILES,
            "File that binds the records to the site's key (default: beside --sign-key, or else "
            "--key, with the suffix .records).",
        ),
    ] = None,
    dry_run: Annotated[
        bool, other(FILES, "Read and check the rows, and start nothing.", "--dry-run")
    ] = False,
) -> None:
    """Run it until it is stopped."""
    from fedcal.experiments.deploy.rows import site_rows
    from fedcal.experiments.deploy.site import run_site

    names = None if class_names is None else names_in(class_names)
    if dry_run:
        rows = site_rows(data, names, csv)
        console().print("\n".join([rows.described(), *rows.doubts()]))
        return
    if fleet is None or root_certificates is None or key is None:
        raise InputError("a site needs --fleet, --root-certificates and --key (or --dry-run)")
    if not 0 <= wait <= 86400:
        raise InputError(f"--wait must be seconds in [0, 86400], got {wait:g}")
    run_site(
        data,
        fleet=read_address("--fleet", fleet),
        root_certificates=root_certificates,
        key=key,
        names=names,
        state=state,
        wait=wait,
        policy=policy,
        federation=federation,
        sign_key=sign_key,
        key_records=key_records,
        read=partial(site_rows, data, names, csv),
    )
