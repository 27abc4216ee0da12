"""A run over real sites: started on a SuperLink that is up, followed, stopped, and gone on with.

The folder of a run, `--out`, must be reachable under one path for this process and for the
SuperLink's executor: both run on the server's machine, or share a volume. In it lie `run.json`
(how the run was started), `server/` (what the executor writes: progress, checkpoint, outcome) and
at the end the result files of any run.
"""

from __future__ import annotations

import contextlib
import json
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fedcal.core import errors
from fedcal.core.checks import needed, one_of, same
from fedcal.experiments.deploy.fleet import check_control, plain_key, read_address, trusted
from fedcal.experiments.runs import folders, jobs, load
from fedcal.experiments.runs.config import Config, load_config
from fedcal.experiments.runs.engines import superlink as flower
from fedcal.experiments.runs.record import recorded, result_of
from fedcal.experiments.runs.result import SimulationResult
from fedcal.secure_aggregation.roster import Roster
from fedcal.storage.artifact import Holdout
from fedcal.storage.atomic import must_exist, must_not_exist, path_of, write_whole
from fedcal.strategies.server import run_folder
from fedcal.strategies.server.checkpoint import CHECKPOINT, Checkpoint
from fedcal.strategies.server.job import Job
from fedcal.strategies.server.outcome import OUTCOME, Outcome, Progress
from fedcal.strategies.server.participation import names_of
from fedcal.strategies.server_app import WITHOUT_UNREADY

STARTED, SERVER, CONFIG = "run.json", "server", "config.toml"
"""Files of a run's folder: how it was started, what the executor writes, what was asked for."""

_TICK_S, _ASK_S = 0.2, 15.0
"""Seconds between looks into the folder, and between questions to the SuperLink."""
_ENDS_S = 60.0
"""Seconds that a server may take to end after its run."""
_GONE_S = 180.0
"""Seconds without a word of the run after which the SuperLink is taken to be gone."""


def deployed(
    config: Config,
    *,
    test: Any = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    without_unready: bool = False,
    report: bool = True,
    progress: Progress | None = None,
) -> SimulationResult:
    """Run a method over the sites of a SuperLink, and write the files of any run.

    Parameters
    ----------
    config
        with `control` and `root_certificates`
    test
        what `simulate` takes as data: its test rows judge the result here; None = only the sites
        judge it, each on its own rows
    out
        folder of the run
    resume
        go on with the run that is there: follow it if its server is at it, fetch its outcome if
        there is one
    overwrite
        replace a finished run that is there; otherwise it is refused
    without_unready
        go on without sites that say that they cannot take part; else they stop a run that has
        released nothing
    report
        False writes neither report nor figures
    progress
        called after each round

    Raises
    ------
    InputError
        Anything that is not allowed, also by a site's policy; nothing was asked.
    RoundFailed
        Too few sites answered.
    FedcalError
        The SuperLink is away, or the run failed there.
    Interrupted
        Ctrl-C: the run goes on without this process.
    """
    place: Any = needed("--out", out, "the server writes to the folder of the run")
    out = path_of(place).resolve()
    rows = None if test is None else load.load_any(test, csv=config.csv).split(config.seed)
    held = None if rows is None else load.test_part(rows, config.seed)
    config = _as_it_is(config, "" if rows is None else load.name_of(test, rows))
    job = jobs.job_of(config, None)
    work = out / SERVER
    _check_folder(out, work, resume, overwrite)
    folders.claim(out, folders.DEPLOYED, overwrite=overwrite, resume=resume)
    if not resume or not (work / OUTCOME).exists():
        with control(str(config.control), str(config.root_certificates)) as superlink:
            if resume and _goes_on(superlink, out):
                warnings.warn("the run has not ended: followed as it was started", stacklevel=2)
            elif not resume or not (work / OUTCOME).exists():
                _start(superlink, job, config, out, resume, without_unready)
            _follow(superlink, out, progress)
    with folders.ReleaseStore(out, folders.DEPLOYED, "", known=True).reporting():
        return _result(config, out, held, report)


def _as_it_is(config: Config, data: str) -> Config:
    """Return the config to keep: its files can be found from elsewhere, clients are the roster's.

    Raises InputError if the federation file cannot be read, or has another number of sites.
    """
    if config.federation is not None:
        path = path_of(config.federation).resolve()
        sites = len(Roster.read(path).sites)
        same(f"number of clients, by {config.federation},", config.clients or sites, sites)
        config = replace(config, clients=sites, federation=str(path))
    return replace(
        jobs.by_roster(config),
        data=data,
        partition="natural",
        root_certificates=str(path_of(str(config.root_certificates)).resolve()),
        ledger=None if config.ledger is None else str(path_of(config.ledger).resolve()),
        noise_source="system",
    )


def _check_folder(out: Path, work: Path, resume: bool, overwrite: bool) -> None:
    if resume:
        must_exist(work / CHECKPOINT, "no run to continue. Start one with fedcal deploy run")
    elif not (overwrite or (out / "result.json").exists()):
        why = f"a run that is paid for and has no report yet. fedcal report {out} makes it"
        must_not_exist(work / OUTCOME, f"{why}, or choose another folder")
    if not (resume or (work / OUTCOME).exists()):
        why = f"a run that has not ended. fedcal deploy resume --out {out} goes on with it"
        must_not_exist(work / CHECKPOINT, f"{why}, or choose another folder")
    with errors.system_errors(f"cannot write {work}"):
        work.mkdir(parents=True, exist_ok=True)
    if not resume:
        with run_folder.alone(work):
            pass


def _goes_on(superlink: Control, out: Path) -> bool:
    """Return whether a server is at the run; one whose run Flower has ended is awaited.

    Raises FedcalError if that one does not end.
    """
    deadline = time.monotonic() + _ENDS_S
    while True:
        try:
            with run_folder.alone(out / SERVER):
                return False
        except errors.InputError as held:
            if not superlink.flower.status(flower_run(out)).startswith(ENDED):
                return True
            if time.monotonic() > deadline:
                raise errors.FedcalError(f"{held}, but Flower's has: end its process") from None
        time.sleep(_TICK_S)


def _start(
    superlink: Control, job: Job, config: Config, out: Path, resume: bool, without_unready: bool
) -> None:
    work = out / SERVER
    here = {"data": "", "partition": "", "out": str(work), "resume": resume, "deliver": True}
    here |= {WITHOUT_UNREADY: without_unready}
    open_to_sites = {"classes": 0, "input": ""}
    superlink.flower.write_app({**job.to_fields(), **open_to_sites, **here})
    # the outcome of an earlier run must not be taken for this one's
    run_folder.forget(work, checkpoint=not resume)
    number = superlink.flower.submit()
    write_whole(out / CONFIG, config.to_toml())
    write_whole(out / STARTED, json.dumps({"flower_run": number}))


def _follow(superlink: Control, out: Path, progress: Progress | None) -> None:
    """Return once the outcome is there and delivered; raise what stopped the run.

    A SuperLink that does not answer, or does not know the run, is asked again for `_GONE_S`
    after the last word of the run, be it from the SuperLink or in the folder.
    """
    work, seen, asked = out / SERVER, 0, time.monotonic()
    number, reported, heard = flower_run(out), 0, asked
    try:
        going = True
        while going:
            going = not run_folder.ended(work)
            notices = run_folder.read_notices(work)
            for line in notices[reported:]:
                warnings.warn(line.removeprefix("fedcal: "), stacklevel=2)
            reported = len(notices)
            done = run_folder.read_progress(work)
            for pair in done[seen:]:
                heard = time.monotonic()
                if progress is not None:
                    progress(*pair)
            seen = len(done)
            if going and time.monotonic() - asked > _ASK_S:
                asked = time.monotonic()
                status = superlink.flower.status(number)
                if status.startswith(ENDED) and not run_folder.ended(work):
                    raise _failure(work, status, out)
                if status != flower.UNKNOWN:
                    heard = time.monotonic()
                elif time.monotonic() - heard > _GONE_S and not run_folder.ended(work):
                    raise _gone(work, out)
            time.sleep(_TICK_S if going else 0)
    except KeyboardInterrupt:
        raise errors.Interrupted(
            f"the run continues without this command: fedcal deploy status --out {out} shows it, "
            f"fedcal deploy resume --out {out} waits for its result, fedcal deploy stop --out "
            f"{out} ends it"
        ) from None
    if (error := run_folder.read_error(work)) is not None:
        raise error
    if not (work / OUTCOME).exists():
        raise _failure(work, superlink.flower.status(number), out)


def _gone(work: Path, out: Path) -> errors.FedcalError:
    checkpoint = (work / CHECKPOINT).exists()
    again = f"fedcal deploy resume --out {out} goes on" if checkpoint else "start the run again"
    return errors.FedcalError(
        f"the SuperLink has not reported the run for {_GONE_S:g} s (it is gone, hangs, or was "
        f"restarted without its database): once it is up, {again}"
    )


def _failure(work: Path, status: str, out: Path) -> errors.FedcalError:
    if (error := run_folder.read_error(work)) is not None:
        return error
    if not any(path.name != run_folder.LOCK for path in work.iterdir()):
        return errors.FedcalError(
            f"the run ended as '{status}' and wrote nothing into {work}: does the SuperLink's "
            "executor run on this machine, with fedcal installed?"
        )
    again = f"; fedcal deploy resume --out {out} goes on" if (work / CHECKPOINT).exists() else ""
    return errors.RoundFailed(f"Flower ended the run as '{status}'{again}")


def _result(config: Config, out: Path, test: Holdout | None, report: bool) -> SimulationResult:
    work = out / SERVER
    outcome = Outcome.load(work)
    job = Job.from_fields(Checkpoint.load(work).job)
    known, privacy = recorded(config, job, outcome, tested=test is not None)
    result = result_of(outcome, known, privacy, given=config, test=test, data=None)
    result.save(out, report=report)
    return result


# -- a run that was started earlier -----------------------------------------------------------


def flower_run(out: Path) -> int:
    """Flower's number of the run in this folder; InputError if there is none."""
    with errors.damaged(f"{out} holds no run of fedcal deploy", OSError):
        return int(json.loads((out / STARTED).read_text("utf-8"))["flower_run"])


def asked_for(out: Path, options: dict[str, Any]) -> Config:
    """Return the config of the run in this folder; the SuperLink's address may change."""
    flower_run(out)
    config = load_config(out / CONFIG, {})
    changed = {key: value for key, value in options.items() if value is not None}
    for name in changed:  # else it continues with its options
        one_of("option that may change", name, ("control", "root_certificates", "timeout", "grace"))
    return replace(config, **changed)


class Standing(NamedTuple):
    """Progress of a run.

    Attributes
    ----------
    done, planned
        rounds; 0 planned = not known yet
    status
        in Flower's words
    kept
        whether it can be gone on with
    names
        Flower's number of a node -> what its site is called
    absent
        names of enrolled sites that the run has not met so far
    """

    done: int
    planned: int
    status: str
    kept: bool
    names: dict[str, str]
    absent: list[str]


def standing(superlink: Control, out: Path) -> Standing:
    """Return the progress of the run in this folder."""
    work = out / SERVER
    done, planned = (run_folder.read_progress(work) or [(0, 0)])[-1]
    status = superlink.flower.status(flower_run(out))
    if not (work / CHECKPOINT).exists():
        return Standing(done, planned, status, False, {}, [])
    checkpoint = Checkpoint.load(work)
    names = names_of(str(checkpoint.job.get("roster", "")), int(checkpoint.job["clients"]))
    met = {str(node): names[site] for node, site in checkpoint.roster.items()}
    return Standing(done, planned, status, True, met, sorted(set(names) - set(met.values())))


ENDED = "finished"
"""What Flower's word for the state of a run begins with, once it is over."""


class Node(NamedTuple):
    """A site, as the SuperLink knows it.

    Attributes
    ----------
    number
        Flower's
    status
        in Flower's words: "online", "offline", "registered" (it was never here)
    name
        what its site is called in the run that was asked about; "" = it has not met that
    """

    number: str
    status: str
    name: str = ""


class Control:
    """The commands of `flwr` to one SuperLink."""

    def __init__(self, link: flower.FlowerRun) -> None:
        self.flower = link

    def register(self, keys: Sequence[Path]) -> list[tuple[Path, str]]:
        """Let in the sites with these public keys; those that are known stay so.

        Returns
        -------
        list of (Path, str)
            Each key with Flower's number of its node, or Flower's words where it was known
            before: a key that was unregistered once cannot come back.

        Raises
        ------
        InputError
            If a file cannot be read, or is no public key.
        FedcalError
            If the SuperLink refuses a key, with its words.
        """
        for key in keys:
            with errors.system_errors(f"cannot read the public key {key}"):
                plain_key(str(key), key.read_bytes())
        nodes, refused = [], "the SuperLink did not take"
        for key in keys:
            words = "supernode", "register", key.resolve(), "--name", key.stem
            answer, said = self._ask(f"{refused} {key}", *words, unless="already")
            nodes.append((key, str(answer.get("node-id", said))))
        return nodes

    def nodes(self) -> list[Node]:
        """All sites that are registered."""
        refused = "the SuperLink does not say which sites there are"
        answer, _ = self._ask(refused, "supernode", "list")
        return [Node(str(one["node-id"]), str(one["status"])) for one in answer["nodes"]]

    def revoke(self, node: str) -> None:
        """Let a site out, by Flower's number; its key can never come back.

        Raises FedcalError if the SuperLink refuses.
        """
        self._ask(f"site {node} was not unregistered", "supernode", "unregister", node)

    def stop(self, run_id: int) -> None:
        """End a run; FedcalError if the SuperLink does not."""
        self._ask(f"run {run_id} was not stopped", "stop", str(run_id))

    def _ask(
        self, refused: str, *words: str | Path, unless: str | None = None
    ) -> tuple[dict[str, Any], str]:
        """Return the SuperLink's answer and its words; FedcalError if it is no success.

        Then its words follow `refused`, `unless` they have this one.
        """
        reply = self.flower.flwr(*words, flower.CONNECTION, "--format", "json")
        answer, said = flower.json_in(reply), flower.complaint(reply)
        known = unless is not None and unless in reply
        if not (answer.get("success") or "nodes" in answer or known):
            raise errors.FedcalError(f"{refused}: {said}")
        return answer, said


@contextlib.contextmanager
def control(address: str, root_certificates: str | Path) -> Iterator[Control]:
    """Connect to the control API at HOST:PORT.

    Raises
    ------
    InputError
        If the address or the certificates are none, or Flower's commands are missing.
    FedcalError
        If nobody listens there, or not the SuperLink that the certificates are for.
    """
    at, certificates = read_address("--control", address), path_of(root_certificates)
    check_control(at, trusted(certificates))
    with flower.run_folder() as folder:
        link = flower.FlowerRun(folder, flower.commands("grpc"), {})
        link.connect(str(at), certificates)
        yield Control(link)
