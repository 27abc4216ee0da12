"""The Flower client of a real site: what is asked is checked first, and answered once."""

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedcal import __version__
from fedcal.clients.client_app import answer_with, asks_for_masks, drawn, request_in
from fedcal.clients.site.guard import check, own_terms
from fedcal.clients.site.prepared import Prepared, prepared
from fedcal.clients.site.records.records import (
    answer_once,
    check_booked,
    finish,
)
from fedcal.clients.site.site_log import LOGGER
from fedcal.core import checks, types
from fedcal.core.errors import InputError
from fedcal.privacy.agreement import context_of, job_digest, under_protocol
from fedcal.privacy.request import Request
from fedcal.secure_aggregation.messages import SAID
from fedcal.training.networks import text_of

log = logging.getLogger(LOGGER)
"""A site's plain log: what was asked, answered and refused. Nothing of a row, of how many rows
there are, or of a secret is ever written to it, and of a server's texts nothing that a terminal
would obey."""

MASKED = "masks whose seeds the server knows protect nothing, and are for simulated sites alone"
_LONGEST = 300


def site_app(folder: Path) -> ClientApp:
    """Return a ClientApp over the folder that `fedcal.clients.site.prepared.prepare` wrote.

    It answers `query.who` (what the classes are, as a digest), `query.ready` (whether it can take
    part in a job, before anything of it is booked), `query.answer` (its contribution, if the
    request follows from the job's public facts), under the protocol of secure aggregation
    `query.enrol`, `query.confirm` and `query.open`, and `query.result` (keeps the result of a job
    that the site has answered in, and judges it; nothing of that is sent). Of whatever goes wrong
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
            if shards.inputs is not None:
                own["inputs"] = text_of(shards.input_shape)
            places = {"site": site.number, "place": site.place}
            own |= {key: number for key, number in places.items() if number is not None}
        log.info("asked which classes it has: answered with their digest %s", site.digest[:12])
        return Message(RecordDict({"who": ConfigRecord({**own})}), reply_to=message)

    @app.query("ready")
    def ready(message: Message, context: Context) -> Message:
        with _hide_error_from_server("take part"):
            why = _unfit(prepared(folder), request_in(message), context.run_config)
        if why:
            log.warning("cannot take part: %s", _in_one_line(why))
        else:
            log.info("asked whether it can take part: it can")
        record = ConfigRecord({"why": _in_one_line(why)})
        return Message(RecordDict({"ready": record}), reply_to=message)

    @app.query("answer")
    def answer(message: Message, context: Context) -> Message:
        with _hide_error_from_server("answer"):
            site = prepared(folder)
            came = request_in(message)
            asked = context_of(came)
            log.info("asked: %s", _question(came, asked))
            request, terms = check(context.run_config, came, site)
            plan = terms.plan
            if asks_for_masks(message):
                checks.needed("a number of this site", site.number, MASKED)

            def draw() -> types.Words:
                with _hide_private_errors():
                    words, failed = drawn(
                        site.shards,
                        request,
                        site.number or 0,
                        simulated=site.simulated,
                        private=asked.epsilon < math.inf,
                    )
                if failed is not None:
                    log.warning(
                        "the question fails on this site's rows, none are counted: %s",
                        _where(failed)[1],
                    )
                return words

            if under_protocol(context.run_config):
                records = message.content.config_records
                secure = SecureSite(site, context.run_config, asked.run, plan)
                members = texts_in(records["members"], "enrolments")
                number, question = request.round, request.digest
                with secure.party() as party:
                    sent, again = party.answer(
                        *(secure.job, secure.facts, number, question, members, draw),
                        asked_once=request.query.asked_once,
                    )
                reply = said_to(message, sent)
            else:
                words, again = answer_once(site, context.run_config, plan, request, draw)
                reply = answer_with(words, message, request, site.number or 0)
            job = job_digest(context.run_config, asked.run)
        note = ", again, with the same numbers" if again else ""
        log.info("answered: run %s, round %d, job %s%s", asked.run, asked.round, job[:12], note)
        return reply

    @app.query("result")
    def result(message: Message, context: Context) -> Message:
        from fedcal.clients.site.results import judge_result, keep_result

        with _hide_error_from_server("keep a result"):
            records = message.content.config_records
            about, files = records["run"], records["files"]
            run, form = checks.read(about, "run", str), checks.read(about, "form", str)
            site, fields = prepared(folder), context.run_config
            check_booked(site, fields, run)
            terms = own_terms(fields, run, site)
            artifact = keep_result(site, run, form, files, terms)
            finish(site, fields, run, terms.plan)
        try:
            words = judge_result(site, run, artifact)
        except Exception as e:  # noqa: BLE001  a server must not learn on which rows it fails
            words = f"which cannot be judged: {_where(e)[1]}"
        log.info("result received: run %s, %s", run, words)
        return Message(RecordDict({"ok": ConfigRecord()}), reply_to=message)

    _take_part_in_sums(app, folder)
    return app


def _take_part_in_sums(app: ClientApp, folder: Path) -> None:
    """Let an app answer what the protocol of secure aggregation asks beside contributions."""

    def in_job(message: Message, context: Context, record: str) -> SecureSite:
        run = checks.read(message.content.config_records[record], "run", str)
        site, fields = prepared(folder), context.run_config
        terms = own_terms(fields, run, site)
        secure = SecureSite(site, fields, run, terms.plan)  # first: it names another federation
        site.check_policy(fields, terms, 0)
        return secure

    @app.query("enrol")
    def enrol(message: Message, context: Context) -> Message:
        with _hide_error_from_server("enrol"):
            secure = in_job(message, context, "job")
            with secure.party() as party:
                text = party.enrol(secure.job, secure.facts)
        log.info("enrolled as a member of the committee: job %s", secure.job[:12])
        return said_to(message, text)

    @app.query("confirm")
    def confirm(message: Message, context: Context) -> Message:
        with _hide_error_from_server("confirm a sum"):
            secure = in_job(message, context, "sum")
            asked = message.content.config_records["sum"]
            number, headers = checks.read(asked, "round", int), texts_in(asked, "headers")
            sealed = texts_in(asked, "sealed")
            checks.same("number of sealed seeds", len(sealed), len(headers))
            sums = list(zip(headers, sealed, strict=True))
            with secure.party() as party:
                text = party.confirm(secure.job, number, secure.plan.quorum, sums)
        log.info("confirmed: job %s, round %d, %d sites", secure.job[:12], number, len(headers))
        return said_to(message, text)

    @app.query("open")
    def open_sum(message: Message, context: Context) -> Message:
        with _hide_error_from_server("open a sum"):
            secure = in_job(message, context, "sum")
            asked = message.content.config_records["sum"]
            number = checks.read(asked, "round", int)
            of, signed = checks.read(asked, "of", str), texts_in(asked, "signed")
            with secure.party() as party:
                text = party.open(secure.job, number, of, signed)
        log.info("opened: job %s, round %d", secure.job[:12], number)
        return said_to(message, text)


def texts_in(record: Mapping[str, Any], key: str) -> list[bytes]:
    """Return a list of messages of the protocol; InputError for anything else."""
    value = record.get(key)
    if not isinstance(value, list) or not all(isinstance(text, bytes) for text in value):
        raise InputError(f"{key!r} of the message must be a list of bytes")
    return value


def said_to(message: Message, text: bytes) -> Message:
    """Return the reply to a message of the protocol."""
    return Message(RecordDict({SAID: ConfigRecord({SAID: text})}), reply_to=message)


def _unfit(site: Prepared, came: Request, fields: Mapping[str, Any]) -> str:
    """Why this site cannot take part in a job, in words that may leave it; "" = it can.

    Formal guarantee: no row is looked at, and nothing is booked. What is returned follows from
    the message, the run config, the site's policy, its federation, which columns and which classes
    it has, and, in one bit, from whether its budget suffices. So the text of an error may go out
    here: it is one of policy or columns. Errors about files and records are raised instead, for
    their texts name folders; then the server learns that the site is not ready. What depends on
    rows is never in the reply: a site whose rows a question does not fit says that it can.
    """
    asked = context_of(came)
    # from files, whose errors are not for the server
    _ = site.terms, site.policy, site.roster, site.sign_key
