"""The Flower client of a real site: what is asked is checked first, and answered once."""

import logging
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedcal import __version__
from fedcal.clients.replies import answer_with, drawn
from fedcal.clients.site.guard import WITH_POLICY, Prepared, check, own_terms, prepared
from fedcal.clients.site.party import Party
from fedcal.clients.site.policy import JobFacts
from fedcal.clients.site.process.limits import OverLimit, lacks_memory
from fedcal.clients.site.site_log import LOGGER
from fedcal.clients.site.store import records_of
from fedcal.core import checks, numerics
from fedcal.core.checks import BudgetExceeded, ContributionRefused, FedcalError, InputError
from fedcal.privacy.agreement import Terms
from fedcal.privacy.query import Asked
from fedcal.secure_aggregation.messages import REPLY

log = logging.getLogger(LOGGER)
"""A site's plain log: what was asked, answered and refused. Nothing of a row, of how many rows
there are, or of a secret is ever written to it, and of a server's texts nothing that a terminal
would obey."""

MASKED = "masks whose seeds the server knows protect nothing, and are for simulated sites alone"
_LONGEST = 300


def site_app(folder: Path) -> ClientApp:
    """Return a ClientApp over the folder that `fedcal.clients.site.guard.prepare` wrote.

    It answers `query.who` (what the classes are, as a digest), `query.ready` (whether it can take
    part in a job, before anything of it is booked), `query.answer` (its contribution, if the
    question is one of the accepted terms), under the protocol of secure aggregation
    `query.enrol`, `query.confirm` and `query.open`, and `query.result` (keeps the bytes of the
    result of a job that the site has answered in). Of whatever goes wrong
    the server learns the class of the error; the site's log says why. The one text that it learns
    is that of `query.ready`, see `_unfit`.
    """
    app = ClientApp()

    @app.query("who")
    def who(message: Message, context: Context) -> Message:
        with _hide_error_from_server("state its name"):
            site = prepared(folder)
            shards = site.shards
            own: dict[str, int | str] = {"classes": shards.classes, "input": shards.input}
            own |= {"names": site.digest, "version": __version__}
            places = {"site": site.number, "place": site.place}
            own |= {key: number for key, number in places.items() if number is not None}
        log.info("asked which classes it has: answered with their digest %s", site.digest[:12])
        return Message(RecordDict({"who": ConfigRecord({**own})}), reply_to=message)

    @app.query("ready")
    def ready(message: Message, context: Context) -> Message:
        with _hide_error_from_server("take part"):
            asked = Asked.from_records(message.content.config_records)
            why = _unfit(prepared(folder), asked, context.run_config)
        if why:
            log.warning("cannot take part: %s", _in_one_line(why))
        else:
            log.info("asked whether it can take part: it can")
        record = ConfigRecord({"why": _in_one_line(why)})
        return Message(RecordDict({"ready": record}), reply_to=message)

    @app.query("answer")
    def answer(message: Message, context: Context) -> Message:
        with _hide_error_from_server("answer"):
            site, records = prepared(folder), message.content.config_records
            asked = Asked.from_records({name: records[name] for name in ("query", "context")})
            log.info("asked: run %s, round %d: %s", asked.run, asked.round, asked.query.kind)
            request, terms = check(context.run_config, asked, site)
            job = JobFacts.of(terms, asked.run, site.server)
            if "masking" in records:
                checks.needed("a number of this site", site.number, MASKED)

            def draw() -> numerics.Words:
                with _hide_private_errors():
                    words, failed = drawn(
                        site.shards,
                        replace(request, seed=site.seed),
                        site.number or 0,
                        simulated=site.simulated,
                        private=terms.plan.private,
                    )
                if failed is not None:
                    log.warning(
                        "the question fails on this site's rows, none are counted: %s",
                        _where(failed)[1],
                    )
                return words

            question, once = (request.round, request.digest), request.query.asked_once
            if terms.plan.committee:
                members = texts_in(records["members"], "enrolments")
                with party_of(site) as party:
                    sent, again = party.answer(job, *question, members, draw, asked_once=once)
                reply = replied_to(message, sent)
            else:
                with records_of(site) as book:
                    sent, again = book.answer(
                        job, *question, lambda: draw().astype("<u8").tobytes(), asked_once=once
                    )
                words = np.frombuffer(sent, "<u8").astype(np.uint64)
                reply = answer_with(words, message, request, site.number or 0)
        plan = terms.plan
        log.info(
            "answered: run %s, round %d of %d, job %s, epsilon %g, delta %g, unit %s, trust %s%s",
            *(asked.run, asked.round, plan.rounds, job.job[:12]),
            *(plan.epsilon, plan.delta, plan.unit, plan.trust),
            ", again, with the same numbers" if again else "",
        )
        return reply

    @app.query("result")
    def result(message: Message, context: Context) -> Message:
        from fedcal.clients.site.results import keep_result

        with _hide_error_from_server("keep a result"):
            records = message.content.config_records
            about, files = records["run"], records["files"]
            run, form = checks.read(about, "run", str), checks.read(about, "form", str)
            site = prepared(folder)
            terms = own_terms(context.run_config, run, site)
            job = JobFacts.of(terms, run, site.server)
            with records_of(site) as known, known.transaction():
                if job.job not in {one.job for one in known.booked()}:
                    raise InputError("this site has not answered in the run of this result")
            keep_result(folder, run, form, files, terms)
            with records_of(site) as known:
                known.finish(job.job)
        log.info("result received: run %s, fedcal site status says where it is", run)
        return Message(RecordDict({"ok": ConfigRecord()}), reply_to=message)

    _take_part_in_sums(app, folder)
    return app


def _take_part_in_sums(app: ClientApp, folder: Path) -> None:
    """Let an app answer what the protocol of secure aggregation asks beside contributions."""

    @contextmanager
    def in_job(
        what: str, message: Message, context: Context, record: str
    ) -> Iterator[tuple[Party, JobFacts, Mapping[str, Any], Terms]]:
        with _hide_error_from_server(what):
            fields, site = message.content.config_records[record], prepared(folder)
            run = checks.read(fields, "run", str)
            terms = own_terms(context.run_config, run, site)
            with party_of(site) as party:
                yield party, JobFacts.of(terms, run, site.server), fields, terms

    @app.query("enrol")
    def enrol(message: Message, context: Context) -> Message:
        with in_job("enrol", message, context, "job") as (party, job, _, _):
            text = party.enrol(job)
        log.info("enrolled as a member of the committee: job %s", job.job[:12])
        return replied_to(message, text)

    @app.query("confirm")
    def confirm(message: Message, context: Context) -> Message:
        with in_job("confirm a sum", message, context, "sum") as (party, job, fields, terms):
            number, headers = checks.read(fields, "round", int), texts_in(fields, "headers")
            sealed = texts_in(fields, "sealed")
            checks.same("number of sealed seeds", len(sealed), len(headers))
            sums = list(zip(headers, sealed, strict=True))
            text = party.confirm(job.job, number, terms.plan.quorum, sums)
        log.info("confirmed: job %s, round %d, %d sites", job.job[:12], number, len(headers))
        return replied_to(message, text)

    @app.query("open")
    def open_sum(message: Message, context: Context) -> Message:
        with in_job("open a sum", message, context, "sum") as (party, job, fields, _):
            number, of = checks.read(fields, "round", int), checks.read(fields, "of", str)
            text = party.open(job.job, number, of, texts_in(fields, "signed"))
        log.info("opened: job %s, round %d", job.job[:12], number)
        return replied_to(message, text)


def texts_in(record: Mapping[str, Any], key: str) -> list[bytes]:
    """Return a list of messages of the protocol; InputError for anything else."""
    value = record.get(key)
    if not isinstance(value, list) or not all(isinstance(text, bytes) for text in value):
        raise InputError(f"{key!r} of the message must be a list of bytes")
    return value


def replied_to(message: Message, text: bytes) -> Message:
    """Return the reply to a message of the protocol."""
    return Message(RecordDict({REPLY: ConfigRecord({REPLY: text})}), reply_to=message)


def _unfit(site: Prepared, asked: Asked, fields: Mapping[str, Any]) -> str:
    """Return the reason for refusing a job, safe to send to the server; "" = none.

    Formal guarantee: no row is looked at, and nothing is booked. What is returned follows from
    the message, the run config, the site's terms and policy, its federation, which columns and
    which classes it has, and, in one bit, from whether its budget suffices. So the text of an error
    may go out here: it is one of terms, policy or columns. Errors about files and records are
    raised instead, for their texts name folders; then the server learns that the site is not ready.
    What depends on rows is never in the reply: a site whose rows a question does not fit says that
    it can.
    """
    # from files, whose errors are not for the server
    _ = site.terms, site.policy, site.roster, site.sign_key
    try:
        terms = check(fields, asked, site)[1]
    except InputError as e:
        if isinstance(e.__context__, OSError):
            raise
        return str(e)
    try:
        with records_of(site) as records:
            records.afford(JobFacts.of(terms, asked.run, site.server))
    except BudgetExceeded as e:
        log.warning("cannot take part: %s", e)
        return "its remaining budget does not suffice for this run"
    return ""


class Refused(FedcalError):
    """Error of which the server learns the class only."""


class _Unsafe(Exception):
    """An error whose text may tell of rows: its class, and where it was raised."""


@contextmanager
def _hide_error_from_server(what: str) -> Iterator[None]:
    """Log in one line why the site does not do `what`, and tell the server only the class."""
    try:
        yield
    except FedcalError as e:
        kind, why = type(e).__name__, str(e)
    except _Unsafe as e:
        kind, why = e.args
    except Exception as e:  # noqa: BLE001  whatever it is, its text must not leave
        kind, why = _where(e)
    else:
        return
    log.warning("refused to %s: %s", what, _in_one_line(why))
    # `from None`: Flower logs what is raised here with all that it came from
    raise Refused(f"{kind}; see the site's own log") from None


def _in_one_line(why: str) -> str:
    return " ".join(why.split())[:_LONGEST]


@contextmanager
def _hide_private_errors() -> Iterator[None]:
    """Keep texts of errors that rows were in out of the log."""
    try:
        yield
    except (ContributionRefused, OverLimit):
        raise  # their texts tell of the bound, and of time
    except Exception as e:  # noqa: BLE001
        raise _Unsafe(*_where(e)) from None


def _where(error: Exception) -> tuple[str, str]:
    """Return the class of an error, and a line for the log without its text."""
    if lacks_memory(error):
        return OverLimit.__name__, "it takes more memory than this site gives a message"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    kind = type(error).__name__
    return kind, f"{kind} in {Path(frame.filename).name}, line {frame.lineno}"


@contextmanager
def party_of(site: Prepared) -> Iterator[Party]:
    """Open the records of a site, for what it does in a job under the protocol.

    That the job is one among the sites of its roster is checked before, by its policy.
    """
    roster = checks.needed("a roster", site.roster, WITH_POLICY)
    key = checks.needed("a signing key", site.sign_key, WITH_POLICY)
    with records_of(site) as records:
        yield Party(key, roster, records)
