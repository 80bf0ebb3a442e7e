"""``pelton service``: find services, read their statistics, call and offer them."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.messages.decoding import Decoder, decoded
from pelton.cli.messages.requesting import filled_request
from pelton.cli.messages.showing import body_of, headers_of, lines_of_stdin, told_of_losses
from pelton.cli.output import (
    duration,
    number,
    payload,
    print_facts,
    print_json,
    print_json_line,
    print_table,
)
from pelton.cli.session import Session, command
from pelton.cli.values import PATTERN_ERRORS, Whole, Word, pairs
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pelton.client.services import ServiceInfo, ServicePing, ServiceStats
    from pelton.client.sync import Client
    from pelton.client.sync.messages import Message
    from pelton.client.sync.services import Request

_SERVICE_NAME = re.compile("[A-Za-z0-9_-]+")
_NAME = click.argument("name")
_OPTIONAL_NAME = click.argument("name", default="")
_ID = click.argument("id", default="")


def _data(value: ServicePing | ServiceInfo | ServiceStats) -> Any:
    """The JSON that the service sent."""
    import msgspec

    return msgspec.to_builtins(value)


def _none(name: str) -> click.ClickException:
    return click.ClickException(f"no service {name} answers" if name else "no service answers")


@click.command()
@_OPTIONAL_NAME
@command
@click.pass_obj
def ls(session: Session, name: str) -> None:
    """List the services, or the instances of the service NAME."""
    with session.connect() as client:
        found = client.service_client().info(name)
    found.sort(key=lambda each: (each.name, each.version, each.id))
    if session.as_json:
        print_json([_data(each) for each in found])
        return
    rows = [(each.name, each.version, each.id, each.description) for each in found]
    print_table(("Name", "Version", "ID", "Description"), rows)


@click.command()
@_NAME
@_ID
@click.option(
    "-e", "--endpoint", metavar="REGEX", help="In the page, only endpoints whose name matches."
)
@command
@click.pass_obj
def info(
    session: Session,
    name: str,
    id: str,  # noqa: A002  # the name of the argument
    endpoint: str | None,
) -> None:
    """Show an instance of the service NAME, or the one with ID, with its statistics."""
    try:
        wanted = re.compile(endpoint or "")
    except PATTERN_ERRORS as error:
        text = f"--endpoint: {endpoint!r} is not a regular expression: {error}"
        raise click.UsageError(text) from None
    with session.connect() as client:
        services = client.service_client()
        infos = services.info(name, id)
        stats = services.stats(name, infos[0].id) if infos else []
    if not infos:
        raise _none(name)
    found = infos[0]
    if session.as_json:
        print_json({"info": _data(found), "stats": _data(stats[0]) if stats else None})
        return
    print_facts(
        f"Service {found.name}",
        [
            ("ID", found.id),
            ("Description", found.description),
            ("Version", found.version),
            ("Metadata", _texts(found.metadata)),
            ("Started", stats[0].started.isoformat() if stats else ""),
        ],
    )
    figures = {each.name: each for each in stats[0].endpoints} if stats else {}
    for there in found.endpoints:
        if not wanted.search(there.name):
            continue
        facts = [
            ("Subject", there.subject),
            ("Queue group", there.queue_group),
            ("Metadata", _texts(there.metadata)),
        ]
        if each := figures.get(there.name):
            facts += [
                ("Requests", number(each.num_requests)),
                ("Errors", number(each.num_errors)),
                ("Last error", each.last_error),
                ("Processing time", duration(each.processing_time_ns)),
                ("Average time", duration(each.average_processing_time_ns)),
            ]
        print_facts(f"Endpoint {there.name}", facts)


def _texts(metadata: dict[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in metadata.items())


@click.command()
@_NAME
@_ID
@command
@click.pass_obj
def stats(session: Session, name: str, id: str) -> None:  # noqa: A002  # the name of the argument
    """Show the statistics of the instances of the service NAME, or of the one with ID."""
    with session.connect() as client:
        found = client.service_client().stats(name, id)
    if not found:
        raise _none(name)
    found.sort(key=lambda each: each.id)
    if session.as_json:
        print_json([_data(each) for each in found])
        return
    columns = ("ID", "Endpoint", "Queue Group", "Requests", "Errors", "Processing", "Average")
    rows = [
        (
            each.id,
            endpoint.name,
            endpoint.queue_group,
            number(endpoint.num_requests),
            number(endpoint.num_errors),
            duration(endpoint.processing_time_ns),
            duration(endpoint.average_processing_time_ns),
        )
        for each in found
        for endpoint in each.endpoints
    ]
    print_table(columns, rows, right=frozenset(columns[3:]))


@click.command()
@_OPTIONAL_NAME
@command
@click.pass_obj
def ping(session: Session, name: str) -> None:
    """Print the instances of all services, or of the service NAME, that answer, and how fast."""
    from pelton.client.services import STALL_S, ServicePing, check_name, decode
    from pelton.errors import NoRespondersError

    subject = f"$SRV.PING.{check_name(name, 'service name')}" if name else "$SRV.PING"
    answered = 0
    with session.connect() as client:
        started = time.monotonic()
        try:
            for answer in client.request_many(subject, stall=STALL_S):
                seconds = time.monotonic() - started
                found = decode(answer.data, ServicePing)
                answered += 1
                if session.as_json:
                    print_json_line(_data(found) | {"rtt_ns": int(seconds * 1e9)})
                else:
                    print(shown(f"{found.name} {found.id}  rtt={seconds * 1e3:.2f}ms"), flush=True)
        except NoRespondersError:
            pass
    if not answered:
        raise _none(name)


@click.command()
@click.argument("subject", metavar="SUBJECT|SERVICE")
@click.argument("words", nargs=-1, metavar="[ENDPOINT] [BODY]")
@click.option("-H", "--header", multiple=True, help='A header, as "name: value".')
@click.option("-r", "--raw", is_flag=True, help="Only the payload.")
@click.option("--count", default=1, type=Whole(1), help="How many requests.")
@click.option("--force-stdin", is_flag=True, help="Read standard input even if BODY is given.")
@click.option(
    "--send-on",
    type=Word(["eof", "newline"]),
    default="eof",
    show_default=True,
    help="Standard input is one request, or each line is one.",
)
@click.option("--templates/--no-templates", default=True, help="Fill in {{Count}} and the like.")
@decoded
@command
@click.pass_obj
def request(
    session: Session,
    subject: str,
    words: tuple[str, ...],
    header: tuple[str, ...],
    raw: bool,
    count: int,
    force_stdin: bool,
    send_on: str,
    templates: bool,
    decoder: Decoder,
) -> None:
    """Call an endpoint with BODY (or standard input) and print the answer.

    The endpoint is that at SUBJECT, or ENDPOINT of SERVICE. An error of the service is an error of this
    command.
    """
    if len(words) > 2:
        raise click.UsageError(f"unexpected {words[2]!r}: give SERVICE ENDPOINT BODY")
    headers = headers_of(header)
    with session.connect() as client:
        found = _endpoint(client, subject, words[0]) if words else None
        if found is None and len(words) == 2:
            raise click.ClickException(f"no service {subject} with an endpoint {words[0]} answers")
        rest = words if found is None else words[1:]
        body = None if force_stdin or not rest else rest[0]
        bodies: Iterable[bytes]
        if send_on == "newline":
            if body not in (None, "-"):
                raise click.UsageError("--send-on newline reads standard input: leave out BODY")
            bodies = lines_of_stdin()
        else:
            bodies = [body_of(body)] * count
        services = client.service_client()
        for at, each in enumerate(bodies, 1):
            to, data = found or subject, each
            if templates:
                to, data = filled_request(client, to, data, at)
            answer = services.request(to, data, headers=headers)
            _show_answer(session, answer, to, raw, decoder)


def _endpoint(client: Client, service: str, name: str) -> str | None:
    """The subject of an endpoint of a service; None if no service has it."""
    if not _SERVICE_NAME.fullmatch(service):
        return None
    for info in client.service_client().info(service):
        for endpoint in info.endpoints:
            if endpoint.name == name:
                return endpoint.subject
    return None


def _show_answer(
    session: Session, answer: Message, subject: str, raw: bool, decoder: Decoder
) -> None:
    if session.as_json:
        found: dict[str, object] = {"subject": subject}
        if answer.raw_headers:
            found["headers"] = answer.headers.lists()
        print_json(found | decoder.data(subject, answer.data))
    elif raw:
        sys.stdout.buffer.write(decoder.raw(subject, answer.data) + b"\n")
        sys.stdout.buffer.flush()
    else:
        print(decoder.text(subject, answer.data))


@click.command()
@_NAME
@click.option("--version", default="1.0.0", show_default=True, help="Version of the service.")
@click.option("--description", default="", help="The service's description.")
@click.option("--metadata", multiple=True, metavar="NAME=VALUE", help="Metadata; repeatable.")
@click.option("--endpoint", default="echo", show_default=True, help="Name of its endpoint.")
@click.option("--subject", default=None, help="Subject of the endpoint; NAME.ENDPOINT by default.")
@click.option("--queue", default="q", show_default=True, help="Queue group of the instances.")
@click.option("-H", "--header", multiple=True, help='A header of the answers, as "name: value".')
@click.option("--response", default=None, help="Answer with this text, not with the request.")
@click.option(
    "--command",
    "program",
    default=None,
    help="Answer with the output of this shell command, which reads the request from its input.",
)
@click.option("-n", "--count", default=0, type=Whole(0), help="End after this many.")
@command
@click.pass_obj
def serve(
    session: Session,
    name: str,
    version: str,
    description: str,
    metadata: tuple[str, ...],
    endpoint: str,
    subject: str | None,
    queue: str,
    header: tuple[str, ...],
    response: str | None,
    program: str | None,
    count: int,
) -> None:
    """Offer the service NAME with one endpoint, until interrupted.

    It answers with the body of the request, or as --response or --command say. A command that fails
    is answered with an error. --timeout limits how long it may run.
    """
    from pelton.client.services import ServiceConfig

    if response is not None and program is not None:
        raise click.UsageError("--response and --command exclude each other")
    headers = headers_of(header)
    config = ServiceConfig(
        name=name,
        version=version,
        description=description,
        metadata=pairs(metadata, "--metadata"),
        queue_group=queue,
    )
    answer = _answering(response, program, session.timeout / 1e9)
    where = subject or f"{name}.{endpoint}"
    handled = 0
    with told_of_losses(), session.connect(lasting=True) as client:
        with client.add_service(config) as service:

            def handle(asked: Request) -> None:
                nonlocal handled
                handled += 1
                try:
                    asked.respond(answer(asked), headers=headers)
                finally:
                    _tell(session, asked, handled)
                    if count and handled >= count:
                        service.stop()

            service.add_endpoint(endpoint, handle, subject=where)
            client.flush()
            if not session.as_json:
                print(shown(f"service {name} ({service.id}) answers on {where}"), flush=True)
            service.run()
        client.flush()


def _answering(
    response: str | None, program: str | None, seconds: float
) -> Callable[[Request], bytes]:
    """The function that makes the body of an answer."""
    if response is not None:
        data = response.encode("utf-8", "surrogateescape")
        return lambda asked: data
    if program is None:
        return lambda asked: asked.data
    return lambda asked: _output_of(program, asked.data, seconds)


def _output_of(program: str, data: bytes, seconds: float) -> bytes:
    """The answer of a shell command to a request; ServiceError when it fails."""
    from pelton.errors import ServiceError

    try:
        done = subprocess.run(
            program, shell=True, input=data, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise ServiceError("504", f"the command takes longer than {seconds:g} s") from None
    if done.returncode:
        raise ServiceError("500", f"the command ended with {done.returncode}", done.stderr)
    return done.stdout


def _tell(session: Session, asked: Request, index: int) -> None:
    if session.as_json:
        print_json_line({"subject": asked.subject, **payload(asked.data)})
    else:
        print(shown(f"[#{index}] {asked.subject}: {len(asked.data)} bytes"), flush=True)
