"""``penstock bench pub``, ``sub``, ``service``: messages that no stream stores."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.output import number, print_json_line
from penstock.cli.session import Session, command

from .load import Load, banner, options, run_load

if TYPE_CHECKING:
    from .links import Link, Role


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
    from penstock.client.connection import check_pattern

    load = Load.of(asked)
    wanted = f"{subject}.*" if multisubject else subject
    check_pattern(wanted)

    def role(link: Link, share: int, first: int) -> Role:
        from .roles import Listen

        return Listen(link, wanted, share)

    facts: dict[str, object] = {"subject": wanted}
    run_load(session, "Sub", load, role, facts=facts, each_has_all=True, limit=False)


@click.command()
@click.argument("subject")
@options("common", "messages", "sleep", "rate")
@command
@click.pass_obj
def request(session: Session, /, subject: str, **asked: Any) -> None:
    """Send requests to SUBJECT, each when the answer to the last one is there.

    ``penstock bench service serve SUBJECT`` answers them, or any other service.
    """
    load = Load.of(asked)
    load.subjects(subject)

    def role(link: Link, share: int, first: int) -> Role:
        from .roles import Ask

        def wanted(done: int, count: int) -> tuple[str, bytes]:
            return subject, load.payload

        return Ask(link, share, wanted, load.pace(), lines=load.lines)

    run_load(session, "Service request", load, role, facts=_facts(subject, load))


@click.command()
@click.argument("subject")
@options("common", "sleep")
@command
@click.pass_obj
def serve(session: Session, /, subject: str, **asked: Any) -> None:
    """Answer requests on SUBJECT with --size bytes until interrupted.

    Several clients share the requests. --sleep is the time that each answer takes.
    """
    from penstock.client.connection import check_pattern

    from .links import Crowd
    from .load import opened_links
    from .roles import Serve

    load = Load.of(asked)
    check_pattern(subject)
    banner(session, "Service serve", {"subject": subject, "clients": load.clients})
    with opened_links(session, load.clients) as links:
        roles = [Serve(link, subject, load.payload, load.sleep_ns) for link in links]
        try:
            Crowd(roles).run()
        finally:
            done = sum(role.done for role in roles)
            if session.as_json:
                print_json_line({"requests": done})
            else:
                print(f"{number(done)} requests answered", file=sys.stderr)


def _facts(subject: str, load: Load) -> dict[str, object]:
    return {"subject": f"{subject}.*" if load.many else subject}
