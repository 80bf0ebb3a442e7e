"""``pelton stream cluster`` and ``pelton consumer cluster``: leaders and copies in a cluster."""

from __future__ import annotations

import click

from pelton.cli.output import print_json
from pelton.cli.prompts import Asked, confirm
from pelton.cli.session import Session, command


@click.command(name="step-down")
@click.argument("name", cls=Asked)
@click.option("--preferred", default="", help="Server that should become the leader.")
@click.option("-f", "--force", is_flag=True, help="Accepted for scripts; there is no question.")
@command
@click.pass_obj
def step_down(session: Session, name: str, preferred: str, force: bool) -> None:
    """Let the leader of the stream NAME hand over to another server."""
    from pelton.client.base.models import Placement

    with session.connect() as client:
        placement = Placement(preferred=preferred) if preferred else None
        session.jetstream(client).step_down_stream(name, placement=placement)
    _tell(session, f"the leader of stream {name} hands over", stream=name)


@click.command(name="peer-remove")
@click.argument("name", cls=Asked)
@click.argument("peer")
@click.option("-f", "--force", is_flag=True, help="Do not ask.")
@command
@click.pass_obj
def peer_remove(session: Session, name: str, peer: str, force: bool) -> None:
    """Move the copy of the stream NAME away from the server PEER."""
    if not force:
        confirm(f"Really remove the copy of stream {name} on {peer}?")
    with session.connect() as client:
        session.jetstream(client).remove_stream_peer(name, peer)
    _tell(session, f"the copy of stream {name} leaves {peer}", stream=name, peer=peer)


@click.command(name="step-down")
@click.argument("stream", cls=Asked)
@click.argument("name", cls=Asked, of="stream")
@click.option("--preferred", default="", help="Server that should become the leader.")
@click.option("-f", "--force", is_flag=True, help="Accepted for scripts; there is no question.")
@command
@click.pass_obj
def consumer_step_down(
    session: Session, stream: str, name: str, preferred: str, force: bool
) -> None:
    """Let the leader of the consumer NAME of STREAM hand over to another server."""
    from pelton.client.base.models import Placement

    with session.connect() as client:
        placement = Placement(preferred=preferred) if preferred else None
        session.jetstream(client).step_down_consumer(stream, name, placement=placement)
    text = f"the leader of consumer {name} of stream {stream} hands over"
    _tell(session, text, stream=stream, consumer=name)


def _tell(session: Session, text: str, **data: str) -> None:
    print_json(data) if session.as_json else print(text)
