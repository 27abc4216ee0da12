"""Control runs over real sites.

run starts one and follows it, resume continues one, status shows sites and run, stop ends a run,
register admits sites by their public keys.
"""

from pathlib import Path
from typing import Any

from fedcal.core import pages
from fedcal.core.checks import needed, one_of, unused
from fedcal.core.printable import listed
from fedcal.experiments.cli import parameters, simulate
from fedcal.experiments.deploy.run import (
    Control,
    asked_for,
    control,
    deployed,
    flower_run,
    standing,
)
from fedcal.experiments.report import terminal
from fedcal.experiments.runs import jobs
from fedcal.experiments.runs.config import SIMULATED, Config, load_config, merge, read

_FOLDER = "the folder of the run"
ACTIONS = ("run", "resume", "status", "stop", "register")

_UNSET = {
    "data": "none: only the sites judge the result",
    "clients": "must be given",
    "control": "must be given",
}


_FIRST = ("control", "root_certificates", "federation", "method", "clients", "epsilon", "unit")


@parameters.with_options(Config, but=SIMULATED, unset=_UNSET, first=_FIRST)
def command(
    *,
    action: str,
    keys: list[Path] | None = None,
    by: str = "none",
    config: parameters.ConfigFile = None,
    out: Path | None = None,
    overwrite: parameters.Overwrite = False,
    without_unready: bool = False,
    quiet: parameters.Quiet = False,
    json: parameters.Json = False,
    **options: Any,
) -> None:
    """Do it and show what came of it.

    Arguments
    ---------
    action : run|resume|status|stop|register
    keys : [KEY.pub]...

    Real sites (--engine grpc)
    --------------------------
    by
        none | site: evaluate each site of --federation separately.
    without_unready
        Continue without sites that cannot take part.

    Files and output
    ----------------
    out
        Folder of the run.

    Examples
    --------
    fedcal deploy register site-a.pub --control 127.0.0.1:8000 --root-certificates ca.crt
    fedcal deploy status --control 127.0.0.1:8000 --root-certificates ca.crt
    fedcal deploy run --control 127.0.0.1:8000 --root-certificates ca.crt --clients 3 --method
        fedoneshot --epsilon 1 --unit example --out run
    fedcal deploy stop --out run
    fedcal deploy resume --out run
    """
    one_of("action", action, ACTIONS)
    if action != "register":
        unused("keys are for register", keys=keys or None)
    if action != "run":
        unused(f"{action} begins no run", overwrite=overwrite or None)
    if action in ("run", "resume"):
        given = read({"set": jobs.settings(one_of("by", by, jobs.BY[:2]))}, options)
        asked = _asked(action, given, config, out)
        test = options["data"] if action == "run" else asked.data or None
        with terminal.progress(f"{asked.method}: waiting for the sites", quiet=quiet) as steps:
            how: Any = {"resume": action == "resume", "overwrite": overwrite, "out": out}
            how["progress"] = lambda done, total: steps(done, total, asked.method)
            result = deployed(asked, test=test, without_unready=without_unready, **how)
        terminal.show(simulate.shown(result, out), result.to_json, json=json, quiet=quiet)
        return
    known = {k: v for k, v in options.items() if k in ("control", "root_certificates")}
    if out is not None:
        config_of_run = asked_for(out, known)
        known = {k: getattr(config_of_run, k) for k in known}
    for name in known:
        needed(f"--{name.replace('_', '-')}, or --out,", known[name], "a SuperLink is looked at")
    with control(known["control"], known["root_certificates"]) as superlink:
        if action == "register":
            keys = needed("KEY.pub", keys or None, "the public keys of sites are registered")
            roster = [(str(key), node) for key, node in superlink.register(keys)]
            terminal.show([pages.Table("", ("key", "site"), roster, left=(0,))])
        elif action == "stop":
            out = needed("--out", out, _FOLDER)
            superlink.stop(flower_run(out))
            again = f"fedcal deploy resume --out {out} continues from its checkpoint"
            terminal.show([f"stopped; {again}"])
        else:
            _show_status(superlink, out, json)


def _asked(action: str, options: dict[str, Any], config: Path | None, out: Path | None) -> Config:
    if action == "resume":
        known = {key: value for key, value in options.items() if value != {}}
        return asked_for(needed("--out", out, _FOLDER), known)
    options["engine"] = "grpc"
    asked = merge(options) if config is None else load_config(config, options)
    needed("--control HOST:PORT", asked.control, "the SuperLink of real sites")
    return asked


def _show_status(superlink: Control, out: Path | None, json: bool) -> None:
    """Show which sites are online, and the state of the run; readiness is "online" of all sites."""
    nodes = superlink.nodes()
    state = None if out is None else standing(superlink, out)
    if state is not None:
        nodes = [node._replace(name=state.names.get(node.number, "")) for node in nodes]
    rows = [(node.name or f"node {node.number}", node.status) for node in nodes]
    told: list[Any] = [pages.Table("", ("site", "status"), rows, left=(0,))]
    if state is not None:
        planned = f" of {state.planned}" if state.planned else ""
        told.append(f"{state.status}; rounds done: {state.done}{planned}")
        if state.names and state.absent:
            told.append(f"not in the run so far: {listed(state.absent)}")
    record = {"sites": [node._asdict() for node in nodes], "run": state and state._asdict()}
    terminal.show(told, record, json=json)
