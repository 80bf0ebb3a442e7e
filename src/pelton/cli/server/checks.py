"""``pelton server check``: health checks for Nagios and its successors, and for Prometheus."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from functools import update_wrapper, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from pelton.cli.inputs import read_text_input
from pelton.cli.server import check_rules as rules
from pelton.cli.server.check_report import FORMS, Form, Metric, Report, exit_code, rendered
from pelton.cli.values import DURATION, PATTERN_ERRORS, WHOLE, Word
from pelton.errors import MessageNotFoundError, PeltonError, PeltonTimeoutError

if TYPE_CHECKING:
    from pelton.cli.session import Session
    from pelton.client.sync import Client

F = TypeVar("F", bound=Callable[..., Any])

COLLECTED = "pelton.check_reports"
"""The entry of a context's ``meta`` for a list that gets the reports instead of their being printed."""


def _check(suite: str, name: str = "", *, title: str = "") -> Callable[[F], F]:
    """The options of every check, its output and its exit status.

    The function fills a report. If it cannot check, for instance without a server or a stream, the
    result is critical. ``name`` is the option with the name of the checked item; a check without
    one has a fixed ``title``. Suites and titles are those of the ``nats`` command: alert rules
    match them.
    """

    def wrap(function: F) -> F:
        @click.option(
            "--format",
            "form",
            type=Word(FORMS),
            default="nagios",
            show_default=True,
            help="Form of the result.",
        )
        @click.option(
            "--namespace",
            default="nats_server_check",
            show_default=True,
            help="Beginning of the names of Prometheus.",
        )
        @click.option("--outfile", type=click.Path(dir_okay=False), help="Write to a file.")
        @click.pass_obj
        def command(
            session: Session, /, form: Form, namespace: str, outfile: str | None, **given: Any
        ) -> int:
            report = Report(suite, title or "_".join(str(given[each]) for each in name.split()))
            if session.as_json and form == "nagios":
                form = "json"
            try:
                function(session, report, **given)
            except (PeltonError, OSError) as error:
                report.critical.append(str(error) or type(error).__name__)
            except ValueError as error:
                report.unknown.append(str(error))
            if (reports := click.get_current_context().meta.get(COLLECTED)) is not None:
                reports.append(report)
                return 0
            text = rendered(report, form, namespace)
            if outfile is None:
                print(text)
            else:
                _replace(outfile, text)
            return exit_code(report, form)

        return cast("F", update_wrapper(command, function))

    return wrap


def _replace(path: str, text: str) -> None:
    """Write a file at once: a collector that reads it never sees half of it."""
    draft = f"{path}.{os.getpid()}"
    Path(draft).write_text(f"{text}\n", encoding="utf-8")
    os.replace(draft, path)


def _limits(*rows: tuple[str, str, Any]) -> Callable[[F], F]:
    """Options for thresholds: name, help, and a default that is text for a duration."""

    def wrap(function: F) -> F:
        @wraps(function)
        def inner(*arguments: Any, **given: Any) -> Any:
            limits = {name: given.pop(name.replace("-", "_")) for name, _, _ in rows}
            return function(*arguments, limits=limits, **given)

        found: Any = inner
        for name, text, default in reversed(rows):
            timed = isinstance(default, str)
            found = click.option(
                f"--{name}",
                type=DURATION if timed else WHOLE,
                default=(default or None) if timed else default,
                show_default=default not in ("", None, 0, -1),
                help=text,
            )(found)
        return found  # type: ignore[no-any-return]  # the same signature with options

    return wrap


def _stream_option(function: F) -> F:
    return click.option("--stream", required=True, help="Name of the stream.")(function)


@click.command()
@_limits(
    ("connect-warn", "Warn if connecting takes this long.", "500ms"),
    ("connect-critical", "Critical if connecting takes this long.", "1s"),
    ("rtt-warn", "Warn if a ping takes this long.", "500ms"),
    ("rtt-critical", "Critical if a ping takes this long.", "1s"),
    ("req-warn", "Warn if a message to itself takes this long.", "500ms"),
    ("req-critical", "Critical if a message to itself takes this long.", "1s"),
)
@_check("connections", title="Connection")
def connection(session: Session, report: Report, limits: dict[str, int]) -> None:
    """Check that clients can connect, and how fast."""
    import pelton.client.sync  # noqa: F401  # loading it takes longer than connecting

    started = time.monotonic_ns()
    with session.connect() as client:
        took = {"connect": time.monotonic_ns() - started, "rtt": int(client.rtt() * 1e9)}
        inbox = client.new_inbox()
        waiting = client.subscribe(inbox)
        started = time.monotonic_ns()
        client.publish(inbox, b"round trip")
        client.flush()
        if client.last_error is not None:
            raise client.last_error
        if waiting.next(session.timeout / 1e9) is None:
            raise PeltonTimeoutError("the server did not deliver a message that it has read")
        took["req"] = time.monotonic_ns() - started
    rules.connection(report, took, limits)


@click.command()
@_stream_option
@_limits(
    ("lag-critical", "Critical if an origin is this many messages ahead.", None),
    ("seen-critical", "Critical if an origin was not seen for this long.", ""),
    ("min-sources", "Critical with fewer sources.", None),
    ("max-sources", "Critical with more sources.", None),
    ("peer-expect", "Number of copies that the stream should have.", None),
    ("peer-lag-critical", "Critical if a copy lags by more operations.", None),
    ("peer-seen-critical", "Critical if a copy was not seen for longer.", ""),
    ("msgs-warn", "Warn with so few messages.", None),
    ("msgs-critical", "Critical with so few messages.", None),
    ("subjects-warn", "Warn at this many subjects.", None),
    (
        "subjects-critical",
        "Critical at this many subjects; if lower than the warning: at so few.",
        None,
    ),
)
@_check("stream", "stream")
def stream(session: Session, report: Report, stream: str, limits: dict[str, int | None]) -> None:
    """Check a stream: messages, subjects, sources, mirror, copies.

    Thresholds may stand in the metadata of the stream as io.nats.monitor.lag-critical and so on;
    options go first.
    """
    with session.connect() as client:
        info = session.jetstream(client).stream_info(stream)
    rules.stream(report, info, rules.with_metadata(limits, info.config.metadata))


@click.command()
@_stream_option
@click.option("--consumer", required=True, help="Name of the consumer.")
@click.option("--pinned", is_flag=True, help="Require a pinned client in every priority group.")
@_limits(
    ("outstanding-ack-critical", "Critical at this many pending acks.", None),
    ("waiting-critical", "Critical at this many waiting pull requests.", None),
    ("unprocessed-critical", "Critical at this many messages that were not delivered.", None),
    ("last-delivery-critical", "Critical if the last delivery was this long ago.", ""),
    ("last-ack-critical", "Critical if the last ack was this long ago.", ""),
    ("redelivery-critical", "Critical at this many redelivered messages.", None),
)
@_check("consumer", "stream consumer")
def consumer(
    session: Session,
    report: Report,
    stream: str,
    consumer: str,
    pinned: bool,
    limits: dict[str, int | None],
) -> None:
    """Check a consumer: pending acks, backlog, last delivery and ack.

    Thresholds may stand in the metadata of the consumer as io.nats.monitor.waiting-critical and so
    on; options go first.
    """
    with session.connect() as client:
        info = session.jetstream(client).consumer_info(stream, consumer)
    metadata = info.config.metadata if info.config is not None else {}
    rules.consumer(report, info, rules.with_metadata(limits, metadata), time.time_ns())
    if pinned:
        rules.pinned(report, info)


@click.command()
@_stream_option
@click.option("--subject", default=">", show_default=True, help="Check its last message.")
@click.option("--content", help="A regular expression that the message must have.")
@click.option("--body-timestamp", is_flag=True, help="The body is the time, in Unix seconds.")
@_limits(
    ("age-warn", "Warn if the message is this old.", ""),
    ("age-critical", "Critical if the message is this old.", ""),
)
@_check("message", title="Stream Message")
def message(
    session: Session,
    report: Report,
    stream: str,
    subject: str,
    content: str | None,
    body_timestamp: bool,
    limits: dict[str, int | None],
) -> None:
    """Check the last message of a subject: its age and its content."""
    try:
        pattern = re.compile(content) if content else None
    except PATTERN_ERRORS as error:
        raise ValueError(f"--content: {error}") from None
    try:
        with session.connect() as client:
            found = session.jetstream(client).get_message(stream, last_by_subject=subject)
    except MessageNotFoundError:
        report.critical.append(f"no message found for {subject}")
        return
    body = found.data.decode("utf-8", "replace")
    stored_ns = found.timestamp_ns
    if body_timestamp:
        try:
            stored_ns = int(float(body.strip()) * 1e9)
        except ValueError:
            report.critical.append("the body is no time in Unix seconds")
            return
    age_ns = max(time.time_ns() - stored_ns, 0)
    warning, critical = (limits[name] or 0 for name in ("age-warn", "age-critical"))
    report.above(
        Metric("age", age_ns / 1e9, "Age of the message", "s", warning / 1e9, critical / 1e9),
        f"age {age_ns / 1e9:.2f} s",
        warning=warning / 1e9,
        critical=critical / 1e9,
    )
    report.metrics.append(Metric("size", len(found.data), "Size of the message", "B"))
    if pattern is not None:
        fits = pattern.search(body) is not None
        text = f"content {'matches' if fits else 'does not match'} {content}"
        (report.ok if fits else report.critical).append(text)
    if not report.ok and not report.critical and not report.warning:
        report.ok.append(f"valid message on {stream} > {subject}")


@click.command()
@click.option("--replicas/--no-replicas", default=True, help="Also check the copies of streams.")
@_limits(
    ("mem-warn", "Warn above this part of the memory, in percent.", 75),
    ("mem-critical", "Critical above this part of the memory, in percent.", 90),
    ("store-warn", "Warn above this part of the storage, in percent.", 75),
    ("store-critical", "Critical above this part of the storage, in percent.", 90),
    ("streams-warn", "Warn above this part of the streams, in percent.", -1),
    ("streams-critical", "Critical above this part of the streams, in percent.", -1),
    ("consumers-warn", "Warn above this part of the consumers, in percent.", -1),
    ("consumers-critical", "Critical above this part of the consumers, in percent.", -1),
    ("replica-seen-critical", "Critical if a copy was not seen for longer.", "5s"),
    ("replica-lag-critical", "Critical if a copy lags by more operations.", 200),
)
@_check("jetstream", title="JetStream")
def jetstream(session: Session, report: Report, replicas: bool, limits: dict[str, int]) -> None:
    """Check the JetStream of the account: usage against its limits, copies of streams."""
    with session.connect() as client:
        js = session.jetstream(client)
        rules.account(report, js.account_info(), limits)
        if replicas:
            listing = js.stream_listing()
            rules.replicas(report, listing.found, limits)
            for name, reason in listing.unavailable.items():
                report.critical.append(f"stream {name} is offline: {reason or 'no leader'}")


@click.command()
@click.option("--expect", type=WHOLE, required=True, help="Number of servers of the cluster.")
@_limits(
    ("lag-critical", "Critical if a server lags by more operations.", 0),
    ("seen-critical", "Critical if a server was not seen for longer.", ""),
)
@_check("meta", title="JetStream Meta Cluster")
def meta(session: Session, report: Report, expect: int, limits: dict[str, int | None]) -> None:
    """Check the JetStream cluster: leader, number and state of its servers.

    Needs a user of the system account.
    """
    with session.connect() as client:
        answers = [each.get("data", {}).get("meta_cluster") for each in _ask(client, "JSZ", {})]
    groups = [each for each in answers if each]
    if not groups:
        report.critical.append("JetStream is not clustered")
        return
    rules.meta(report, groups, expect, limits)


@click.command()
@click.option("--name", required=True, help="Name of the server.")
@click.option("--auth-required", is_flag=True, help="Require that clients authenticate.")
@click.option("--tls-required", is_flag=True, help="Require TLS.")
@click.option("--js-required", is_flag=True, help="Require JetStream.")
@_limits(
    ("cpu-warn", "Warn at this CPU usage, in percent.", 0),
    ("cpu-critical", "Critical at this CPU usage, in percent.", 0),
    ("mem-warn", "Warn at this memory, in bytes.", 0),
    ("mem-critical", "Critical at this memory, in bytes.", 0),
    ("conn-warn", "Warn at this many connections.", 0),
    (
        "conn-critical",
        "Critical at this many connections; if lower than the warning: at so few.",
        0,
    ),
    ("subs-warn", "Warn at this many subscriptions.", 0),
    (
        "subs-critical",
        "Critical at this many subscriptions; if lower than the warning: at so few.",
        0,
    ),
    ("uptime-warn", "Warn if the server started less than this ago.", ""),
    ("uptime-critical", "Critical if the server started less than this ago.", ""),
    ("tls-cert-warn", "Warn if the certificate expires within this time.", ""),
    ("tls-cert-crit", "Critical if the certificate expires within this time.", ""),
)
@_check("server", "name")
def server(
    session: Session,
    report: Report,
    name: str,
    auth_required: bool,
    tls_required: bool,
    js_required: bool,
    limits: dict[str, int],
) -> None:
    """Check a server: load, uptime, required features. Needs a user of the system account."""
    from pelton.api.times import parse_time

    with session.connect() as client:
        found = [each.get("data") for each in _ask(client, "VARZ", {"server_name": name})]
    matching = [each for each in found if each and each.get("server_name") == name]
    if not matching:
        report.critical.append(f"no server {name} answers; this needs the system account")
        return
    varz = matching[0]
    up_ns = parse_time(varz["now"]) - parse_time(varz["start"])
    rules.uptime(report, up_ns, limits["uptime-warn"] or 0, limits["uptime-critical"] or 0)
    wanted = {"auth": auth_required, "tls": tls_required, "js": js_required}
    rules.server(report, varz, limits, {each for each, on in wanted.items() if on})
    certificate = {f"validity-{name}": limits[f"tls-cert-{name[:4]}"] or 0 for name in _LEVELS}
    if any(certificate.values()):
        text = str(varz.get("tls_cert_not_after") or "")
        if not text or text.startswith("0001-"):
            report.critical.append("the server tells of no certificate")
        else:
            now_ns = parse_time(varz["now"])
            rules.expiry(report, parse_time(text), now_ns, certificate, required=False)


_LEVELS = ("warn", "critical")


def _ask(client: Client, page: str, wanted: dict[str, object]) -> list[dict[str, Any]]:
    """The answers of all servers to a request of the system account."""
    from pelton.errors import NoRespondersError

    try:
        body = json.dumps(wanted).encode()
        answers = client.request_many(f"$SYS.REQ.SERVER.PING.{page}", body, stall=0.5)
        return [json.loads(each.data) for each in answers]
    except NoRespondersError:
        return []


@click.command()
@click.option("--bucket", required=True, help="Name of the bucket.")
@click.option("--key", help="A key that must have a value.")
@_limits(
    ("values-warn", "Warn at this many values.", -1),
    ("values-critical", "Critical at this many values; if lower than the warning: at so few.", -1),
)
@_check("kv", "bucket")
def kv(
    session: Session, report: Report, bucket: str, key: str | None, limits: dict[str, int]
) -> None:
    """Check a key-value bucket: the number of its values, a key."""
    with session.connect() as client:
        found = session.jetstream(client).key_value(bucket)
        status = found.status()
        count = status.values
        report.ok.append(f"bucket {bucket}")
        warning, critical = (max(limits[f"values-{name}"], 0) for name in ("warn", "critical"))
        report.between(
            Metric("values", count, "Values in the bucket", "", warning, critical),
            f"{count} values",
            warning=warning,
            critical=critical,
        )
        report.metrics += [
            Metric("bytes", status.bytes, "Bytes stored in the bucket", "B"),
            Metric("replicas", status.stream_info.config.num_replicas, "Copies of the bucket"),
        ]
        if key is None:
            return
        there = found.get(key) is not None
    text = f"key {key} {'has a value' if there else 'has no value'}"
    (report.ok if there else report.critical).append(text)


@click.command()
@click.option("--credential", "file", required=True, help="The .creds file.")
@click.option(
    "--require-expiry/--no-require-expiry", default=True, help="Critical if it never expires."
)
@_limits(
    ("validity-warn", "Warn if it expires within this time.", ""),
    ("validity-critical", "Critical if it expires within this time.", ""),
)
@_check("credential", title="Credential")
def credential(
    session: Session, report: Report, file: str, require_expiry: bool, limits: dict[str, int | None]
) -> None:
    """Check how long a credentials file is valid."""
    import base64

    from pelton.nkeys import read_credentials

    jwt = read_credentials(read_text_input(Path(file), encoding="utf-8")).jwt
    try:
        middle = jwt.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
        expires_ns = int(claims.get("exp", 0)) * 1_000_000_000
    except (IndexError, ValueError, AttributeError):
        report.critical.append("the file has no readable JWT")
        return
    known = {name: value or 0 for name, value in limits.items()}
    rules.expiry(report, expires_ns, time.time_ns(), known, require_expiry)


@click.command()
@click.option("--subject", required=True, help="Subject of the request.")
@click.option("--payload", default="", help="Body of the request.")
@click.option(
    "-H", "--header", "--headers", "headers", multiple=True, metavar="NAME:VALUE", help="A header."
)
@click.option("--match-payload", help="A regular expression that the answer must have.")
@click.option(
    "--match-header",
    "--match-headers",
    "wanted",
    multiple=True,
    metavar="NAME:REGEX",
    help="A header that the answer must have.",
)
@_limits(
    ("response-warn", "Warn if the answer takes this long.", ""),
    ("response-critical", "Critical if the answer takes this long.", ""),
)
@_check("request", "subject")
def request(
    session: Session,
    report: Report,
    subject: str,
    payload: str,
    headers: tuple[str, ...],
    match_payload: str | None,
    wanted: tuple[str, ...],
    limits: dict[str, int | None],
) -> None:
    """Check a service: that it answers, how fast, and with what."""
    given = dict(_pair(each, "--header") for each in headers)
    patterns = [_pair(each, "--match-header") for each in wanted]
    try:
        compiled = re.compile(match_payload) if match_payload else None
        checked = [(name, re.compile(pattern)) for name, pattern in patterns]
    except PATTERN_ERRORS as error:
        raise ValueError(f"not a regular expression: {error}") from None
    warning, critical = (limits[f"response-{name}"] or 0 for name in ("warn", "critical"))

    def measured(took_ns: int) -> Metric:
        text = "Time until the answer"
        return Metric("time", took_ns / 1e9, text, "s", warning / 1e9, critical / 1e9)

    with session.connect() as client:
        started = time.monotonic_ns()
        try:
            answer = client.request(
                subject, payload.encode(), headers=given or None, timeout=session.timeout / 1e9
            )
        except PeltonError:
            report.metrics.append(measured(time.monotonic_ns() - started))
            raise
        took_ns = time.monotonic_ns() - started
    report.above(
        measured(took_ns),
        f"answer after {took_ns / 1e6:.2f} ms",
        warning=warning / 1e9,
        critical=critical / 1e9,
    )
    body = answer.data.decode("utf-8", "replace")
    if compiled is not None:
        fits = compiled.search(body) is not None
        text = f"payload {'matches' if fits else 'does not match'} {match_payload}"
        (report.ok if fits else report.critical).append(text)
    for name, pattern in checked:
        values = answer.headers.get_all(name)
        fits = any(pattern.search(each) for each in values)
        text = f"header {name} {'matches' if fits else 'does not match'} {pattern.pattern}"
        (report.ok if fits else report.critical).append(text)
    if not (report.ok or report.critical or report.warning):
        report.ok.append(f"answer after {took_ns / 1e6:.2f} ms")


def _pair(text: str, option: str) -> tuple[str, str]:
    name, sign, value = text.partition(":")
    if not sign or not name:
        raise ValueError(f'{option} "{text}": expected NAME:VALUE')
    return name.strip(), value.strip()
