"""``pelton bench pub``, ``sub``, ``service``: messages that no stream stores."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.output import number, print_json_line
from pelton.cli.session import Session, command
from pelton.cli.values import Whole

from .load import Load, banner, check_size, options, run_load
from .report import Results

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .links import Link, Role

OUTSTANDING_MAX = 65_536


@click.command()
@click.argument("subject")
@options("common", "subjects", "messages", "sleep", "rate")
@command
@click.pass_obj
def pub(session: Session, /, subject: str, **asked: Any) -> None:
    """Publish to SUBJECT as fast as the server takes it.

    The figure counts until the server has handled the last message.
    """
    load = Load.of(asked)
    subjects = load.subjects(subject)

    def role(link: Link, share: int, first: int) -> Role:
        from .roles import Flood
        from .supply import Supply

        supply = Supply(
            subjects, load.payload, lines=load.lines, first=first, max_payload=link.max_payload
        )
        return Flood(link, supply, share, load.pace())

    run_load(session, "Pub", load, role, facts=_facts(subject, load))


@click.command()
@click.argument("subject")
@click.option("--multisubject", is_flag=True, help="Subscribe to SUBJECT.*, as pub publishes.")
@options("common")
@command
@click.pass_obj
def sub(session: Session, /, subject: str, multisubject: bool, **asked: Any) -> None:
    """Subscribe to SUBJECT until each client has --msgs messages.

    The figure counts from the first message on.
    """
    from pelton.client.base.arguments import check_pattern

    load = Load.of(asked)
    wanted = f"{subject}.*" if multisubject else subject
    check_pattern(wanted)

    def role(link: Link, share: int, first: int) -> Role:
        from pelton.core.load.roles import Listen

        return Listen(link, wanted, share)

    facts: dict[str, object] = {"subject": wanted}
    run_load(session, "Sub", load, role, facts=facts, each_has_all=True, limit=False)


@click.command()
@click.argument("subject")
@click.option(
    "--outstanding",
    type=Whole(1, OUTSTANDING_MAX),
    default=1,
    show_default=True,
    help="How many requests of a client may wait for their answer.",
)
@click.option("--serve", "serves", is_flag=True, help="Answer them, too, on one more connection.")
@options("common", "messages", "sleep", "rate")
@command
@click.pass_obj
def request(
    session: Session, /, subject: str, outstanding: int, serves: bool, **asked: Any
) -> None:
    """Send requests to SUBJECT, each when the answer to the last one is there.

    ``pelton bench service serve SUBJECT`` answers them, or any other service, or --serve.
    """
    load = Load.of(asked)
    load.subjects(subject)

    def server(link: Link) -> Role:
        from .service import Serve

        serving = Serve(link, subject, load.payload, 0)
        link.await_server()
        return serving

    def role(link: Link, share: int, first: int) -> Role:
        from pelton.core.load.roles import Requests

        from .roles import ask

        check_size(load, link.max_payload)
        requests = Requests(subject, load.payload, lines=load.lines)
        return ask(link, share, subject, requests, load.pace(), window=outstanding)

    facts = _facts(subject, load)
    if outstanding > 1:
        facts["outstanding"] = outstanding
    beside = server if serves else None
    run_load(session, "Service request", load, role, facts=facts, beside=beside)


@click.command()
@click.argument("subject")
@options("common", "sleep")
@command
@click.pass_obj
def serve(session: Session, /, subject: str, **asked: Any) -> None:
    """Answer requests on SUBJECT with --size bytes until interrupted.

    Several clients share the requests. --sleep is the time that each answer takes. The clients are instances of
    the service nats-bench-service: ``pelton service ls``, ``info`` and ``stats`` show them.
    """
    from pelton.client.base.arguments import check_pattern

    from .links import Crowd
    from .load import opened_links
    from .service import Serve

    load = Load.of(asked)
    check_pattern(subject)
    banner(session, "Service serve", {"subject": subject, "clients": load.clients})
    with opened_links(session, load.clients) as links:
        check_size(load, links[0].max_payload)
        roles = [Serve(link, subject, load.payload, load.sleep_ns) for link in links]
        try:
            Crowd(roles).run()
        finally:
            _show_served(session, load, roles)


def _show_served(session: Session, load: Load, roles: Sequence[Role]) -> None:
    """Say how many requests were answered, and from the first to the last how fast."""
    results = Results("Service serve", len(load.payload), roles)
    if session.as_json:
        print_json_line({"requests": results.all.messages, **results.data()})
        return
    rate = f", {results.rate(results.all)}" if results.all.messages > 1 else ""
    print(f"{number(results.all.messages)} requests answered{rate}", file=sys.stderr)


def _facts(subject: str, load: Load) -> dict[str, object]:
    return {"subject": f"{subject}.*" if load.many else subject}
