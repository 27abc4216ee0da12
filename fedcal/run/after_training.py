"""Calibrate, evaluate or make prediction sets at the end of a training in any Flower app."""

import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord
from flwr.serverapp import Grid

from fedcal.core.checks import InputError, needed, unused
from fedcal.results.labels import APP
from fedcal.run import folders, jobs, load, simulation
from fedcal.run.config import Config, merge
from fedcal.run.result import SimulationResult
from fedcal.storage import atomic
from fedcal.strategies import STRATEGIES, server_app
from fedcal.strategies.server.checkpoint import LOCK, alone
from fedcal.strategies.server.outcome import Outcome

_UNFINISHED = ".unfinished"


class AfterTraining:
    """A strategy object for the end of a Flower ServerApp: `start(grid, arrays)` after FedAvg's.

    The clients, whose app comes from `fedcal.with_answers`, score their own rows by the model that
    was trained; a method of fedcal asks them bounded questions.

    Formal guarantee: of the releases of this run alone, for the chosen unit, (epsilon, delta)
    against who reads them (trust `central`) or also against the server (`local`), under the
    adjacency that the result names. It assumes that the server asks what this object asks, for an
    ordinary SuperNode has no guard, policy or ledger; and of the clients' code that it scores each
    row by itself and fails on none. Where it fails or finds no rows, the server sees that. Neither
    the training nor what else the app sends is covered. Public are the number of clients, the
    method and its parameters. Noise comes from the operating system.

    Parameters
    ----------
    method
        as `simulate` takes it: "fednewton" calibrates, "evaluate" evaluates, "conformal" gives
        prediction sets, ...
    out
        folder for result files, and for what was released as soon as it is; None or "" = no files
    overwrite
        replace the run that `out` holds once the new one is released; otherwise it is refused
    test
        labelled scores of the server's own rows, as `simulate` takes data: they judge the result
    grid, arrays
        of the ServerApp and of the untrained model: `check` the clients now
    **options
        of `simulate`, but for those of a simulation: clients (None = all nodes), rounds, epsilon,
        delta, unit, trust (central or local), mechanism, class_names, timeout, grace, ledger, cap,
        cap_delta, seed, sampling_rate, set={"rows_per_client": 50, ...}

    Raises
    ------
    InputError
        If an option is not allowed.
    RoundFailed
        If `check` finds a client that cannot answer.
    """

    def __init__(
        self,
        method: str | type = "fednewton",
        *,
        out: str | Path | None = None,
        overwrite: bool = False,
        test: Any = None,
        grid: Grid | None = None,
        arrays: ArrayRecord | None = None,
        **options: Any,
    ) -> None:
        here = {"engine": APP, "data": "", "partition": "natural", "noise_source": "system"}
        taken = ({"ray_address", "dropout"} | here.keys()) & options.keys()
        unused("the clients of a Flower app are as they are", **{n: options[n] for n in taken})
        self._config = merge({"method": method, **options, **here})
        if STRATEGIES[self._config.method].family == "train":
            raise InputError(f"{self._config.method} trains a model; the app has trained its own")
        self._out = atomic.path_of(out).resolve() if out else None
        self._test = None
        if test is not None:  # without a test part all rows are
            data = load.load_any(test, self._config.class_names)
            if data.test_scores is None:
                data = replace(data, test_scores=data.scores, test_labels=data.labels)
            self._test = load.test_part(data, self._config.seed)
        # refuses now what it would refuse after the training
        _ = jobs.job_of(replace(self._config, clients=self._config.clients or 100), None).plan
        if self._out is not None:
            folders.claim(self._out, folders.RUN, overwrite=overwrite)
        if grid is not None:
            self.check(grid, arrays)
        else:
            unused("the clients are asked through a grid: give it, too", arrays=arrays)

    def check(self, grid: Grid, arrays: ArrayRecord | None) -> None:
        """Have each client score its rows by a model, before a training; nothing is released.

        The log has the form of the scores. Clients without rows are no fault.

        Raises RoundFailed, with clients by name and kind of error, if one cannot answer.
        """
        model = needed("arrays", arrays or None, "those that the training begins with")
        clients = self._config.clients  # None = as many as have come
        fields = self._fields(replace(self._config, clients=clients or 1))
        server_app.check_clients(grid, {**fields, "clients": clients or 0}, model)

    def start(
        self, grid: Grid, initial_arrays: ArrayRecord, timeout: float | None = None
    ) -> SimulationResult:
        """Ask the clients, and give the result; with `out` its files are written, too.

        Parameters
        ----------
        grid
            of the ServerApp
        initial_arrays
            of the trained model, as `start` of a Flower strategy returns them (`result.arrays`)
        timeout
            seconds that a client may take to answer; None = 120

        Raises
        ------
        InputError
            What is not allowed; nothing was released.
        RoundFailed
            Too few clients answered.
        """
        needed("a trained model", initial_arrays or None, "start(grid, result.arrays)")
        config = self._config
        clients = config.clients or len(list(grid.get_node_ids()))
        fields = self._fields(replace(config, clients=clients, timeout=timeout or config.timeout))
        paid = folders.ReleaseStore(self._out, folders.RUN, "")
        with paid.reporting():
            outcome = self._serve(grid, fields, initial_arrays, paid)
            result = simulation.of_messages(outcome, self._test, class_names=config.class_names)
            if self._out is not None:
                result.save(self._out)
                logging.getLogger("flwr").info("fedcal: written to %s", self._out)
        return result

    def _fields(self, config: Config) -> dict[str, Any]:
        """Return the run's fields for the server."""
        job = jobs.job_of(config, None)
        classes = job.federation.classes if config.class_names else 0  # 0 = as the clients say
        if self._test is not None:
            classes = self._test.probs.shape[1]
        here = {"classes": classes, "input": "", "engine": APP, "data": ""}
        return {**job.to_fields(), **server_app.FRESH, **here, "partition": config.partition}

    def _serve(
        self, grid: Grid, fields: dict[str, Any], arrays: ArrayRecord, paid: folders.ReleaseStore
    ) -> Outcome:
        """Run the job; what is in `out` stays until the outcome takes its place."""
        out = self._out
        if out is None:
            return server_app.serve(grid, {**fields, "out": ""}, arrays)
        out.mkdir(parents=True, exist_ok=True)
        work = out / _UNFINISHED
        with alone(out):
            shutil.rmtree(work, ignore_errors=True)  # of a run that was killed, or failed
            outcome = server_app.serve(grid, {**fields, "out": str(work)}, arrays)
            paid.keep(outcome)
            shutil.rmtree(work, ignore_errors=True)
            (out / LOCK).unlink(missing_ok=True)
        return outcome
